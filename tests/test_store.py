import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import neuralcov as nc
from neuralcov.core import files

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
CRITERIA = [nc.NLC(), nc.NLC(rule="all"), nc.LVC(groups=2), nc.NC(0.5), nc.KMNC(10), nc.NBC(), nc.SNAC(), nc.TKNC(2)]
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def network(widths=(8, 3)):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, widths[0]), nn.ReLU(), nn.Linear(widths[0], widths[1]))


@pytest.fixture
def saved(tmp_path):
    coverage = nc.Coverage(network(), CRITERIA)
    coverage.calibrate([INPUTS])
    coverage.update(INPUTS[:30])
    coverage.save(tmp_path / "suite.ncov")
    coverage.save_calibration(tmp_path / "training.ncal")
    return coverage, tmp_path / "suite.ncov", tmp_path / "training.ncal"


def test_a_loaded_file_goes_on_by_itself(saved):
    coverage, path, _ = saved
    loaded = nc.Coverage.load(path, network())
    assert loaded.values() == coverage.values()
    assert [c.name for c in loaded.criteria] == [c.name for c in CRITERIA]
    for name, gain in coverage.gain(INPUTS[30:]).items():
        assert torch.equal(loaded.gain(INPUTS[30:])[name], gain)
    for each in (coverage, loaded):
        each.update(INPUTS[30:])
    assert loaded.values() == coverage.values()
    loaded.merge(nc.Coverage.load(path, network()))


def test_without_a_model_it_takes_activations(saved):
    coverage, path, _ = saved
    loaded = nc.Coverage.load(path)
    assert loaded.values() == coverage.values()
    assert loaded.by_layer() == coverage.by_layer()
    loaded.update(activations={"0": torch.randn(2, 8), "2": torch.randn(2, 3)})
    with pytest.raises(nc.NeuralcovError, match="has no model"):
        loaded.update(INPUTS)


def test_the_chosen_layers_come_with_the_file(tmp_path):
    coverage = nc.Coverage(network(), [nc.NC()], layers="2")
    coverage.update(INPUTS)
    coverage.save(tmp_path / "a.ncov")
    loaded = nc.Coverage.load(tmp_path / "a.ncov", network())
    loaded.update(INPUTS)
    assert [row.layer for row in loaded.by_layer()] == ["2"]


def test_a_saved_calibration_serves_another_coverage(saved):
    coverage, _, path = saved
    other = nc.Coverage(network(), [nc.KMNC(10), nc.NC(0.5)])
    other.calibrate(path)
    assert other.calibration_ids()["KMNC(10)"] == coverage.calibration_ids()["KMNC(10)"]
    other.update(INPUTS[:30])
    assert other.values()["KMNC(10)"] == coverage.values()["KMNC(10)"]


def test_a_calibration_that_lacks_something(tmp_path):
    small = nc.Coverage(network(), [nc.KMNC(10)])
    small.calibrate([INPUTS])
    small.save_calibration(tmp_path / "small.ncal")
    with pytest.raises(nc.NeuralcovError, match="the calibration holds no moments, which LVC learns from"):
        nc.Coverage(network(), [nc.LVC()]).calibrate(tmp_path / "small.ncal")
    with pytest.raises(nc.NeuralcovError, match="there is no calibration to save"):
        nc.Coverage(network(), [nc.LVC()]).save_calibration(tmp_path / "none.ncal")


def test_another_calibration_is_refused_at_load(saved, tmp_path):
    coverage, path, _ = saved
    other = nc.Coverage(network(), CRITERIA)
    other.calibrate([INPUTS[:50]])
    other.save_calibration(tmp_path / "other.ncal")
    ours = coverage.calibration_ids()["LVC(groups=2)"][:12]
    with pytest.raises(nc.NeuralcovError, match=f"LVC\\(groups=2\\): calibrations differ: this coverage has {ours}"):
        nc.Coverage.load(path, network(), calibration=tmp_path / "other.ncal")


def test_a_truncated_file(saved):
    _, path, _ = saved
    content = path.read_bytes()
    for length in (0, 5, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(nc.NeuralcovError, match="not a neuralcov file, or cut short"):
            nc.Coverage.load(path)


def test_foreign_files(saved, tmp_path):
    foreign = tmp_path / "foreign.ncov"
    save_file({"weight": torch.zeros(3)}, foreign)
    with pytest.raises(nc.NeuralcovError, match="a safetensors file, but not one that neuralcov wrote"):
        nc.Coverage.load(foreign)
    foreign.write_text("hello")
    with pytest.raises(nc.NeuralcovError, match="not a neuralcov file"):
        nc.Coverage.load(foreign)
    with pytest.raises(nc.NeuralcovError, match="there is no such file"):
        nc.Coverage.load(tmp_path / "missing.ncov")
    with pytest.raises(nc.NeuralcovError, match="a calibration file, expected a coverage file"):
        nc.Coverage.load(saved[2])
    with pytest.raises(nc.NeuralcovError, match="a coverage file, expected a calibration file"):
        nc.Coverage(network(), [nc.NC()]).calibrate(saved[1])


def rewritten(path, change):
    """The same file with its metadata changed."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(length))["__metadata__"]
    change(metadata)
    save_file(load_file(path), path, metadata)


def test_a_future_version_names_both(saved):
    rewritten(saved[1], lambda metadata: metadata.update(neuralcov="99"))
    with pytest.raises(nc.NeuralcovError, match="written with file schema 99, this neuralcov reads schema 1"):
        nc.Coverage.load(saved[1])


def edit_header(path, change):
    def edit(metadata):
        header = json.loads(metadata["header"])
        change(header)
        metadata["header"] = json.dumps(header)

    rewritten(path, edit)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("layout"), "the header is damaged"),
        (lambda h: h["criteria"][0].update({"class": "Foreign"}), "holds the criterion 'Foreign'"),
        (lambda h: h["criteria"][0]["state"].update(record="os:system"), "holds a 'os:system', which is not known"),
        (lambda h: h["criteria"][0]["parameters"].update(rule="?"), "rule must be"),
        (lambda h: h["criteria"][0]["parameters"].update(extra=1), "the header is damaged"),
        (lambda h: h.pop("packed"), "the header is damaged"),
    ],
)
def test_damaged_headers(saved, change, message):
    edit_header(saved[1], change)
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage.load(saved[1])


def test_a_missing_tensor(saved):
    tensors = load_file(saved[1])
    name = next(name for name in tensors if name.endswith("counts"))
    with saved[1].open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(length))["__metadata__"]
    del tensors[name]
    save_file(tensors, saved[1], metadata)
    with pytest.raises(nc.NeuralcovError, match=f"the tensor '{name}' is missing"):
        nc.Coverage.load(saved[1])


def test_another_model_is_refused(saved):
    with pytest.raises(nc.NeuralcovError, match=r"layer '0' has 8 neurons in .*suite.ncov but 9 in the model"):
        nc.Coverage.load(saved[1], network((9, 3)))
    with pytest.raises(nc.NeuralcovError, match="no module '0'"):
        nc.Coverage.load(saved[1], nn.Linear(6, 3))


def test_other_hyper_parameters_are_refused(tmp_path):
    coverage = nc.Coverage(network(), [nc.NC(0.5)])
    coverage.update(INPUTS)
    coverage.save(tmp_path / "a.ncov")
    with pytest.raises(nc.NeuralcovError, match=r"holds NC\(0.5\), expected NC\(0.75\)"):
        nc.Coverage.load(tmp_path / "a.ncov", criteria=[nc.NC(0.75)])


def test_saving_nothing_and_saving_nowhere(tmp_path):
    coverage = nc.Coverage(network(), [nc.NC()])
    with pytest.raises(nc.NeuralcovError, match="nothing to save"):
        coverage.save(tmp_path / "a.ncov")
    coverage.update(INPUTS)
    (tmp_path / "file").write_text("")
    with pytest.raises(nc.NeuralcovError, match="cannot be written"):
        coverage.save(tmp_path / "file" / "a.ncov")


def test_a_failed_write_leaves_the_old_file(saved, monkeypatch):
    coverage, path, _ = saved
    before = path.read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuralcov.core.files._stream", full)
    with pytest.raises(nc.NeuralcovError, match="No space left on device"):
        coverage.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if "unfinished" in p.name] == []


def test_options_need_a_model(saved):
    with pytest.raises(nc.NeuralcovError, match="predict= needs a model"):
        nc.Coverage.load(saved[1], predict=lambda x: x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.cell, self.fc = nn.LSTM(4, 6, batch_first=True), nn.GRUCell(6, 3), nn.Linear(3, 2)

    def forward(self, x):
        state = None
        for step in self.lstm(x)[0].unbind(1):
            state = self.cell(step, state)
        return self.fc(state)


@pytest.mark.parametrize("calibration", [False, True])
def test_a_loaded_recurrent_coverage_goes_on_with_its_steps(tmp_path, calibration):
    model = Recurrent()
    coverage = nc.Coverage(model, [nc.KMNC(10), nc.SS()])
    coverage.calibrate([torch.randn(7, 5, 4)])
    coverage.update(torch.randn(7, 5, 4))
    coverage.save(tmp_path / "a.ncov")
    coverage.save_calibration(tmp_path / "a.ncal")
    if calibration:
        again = nc.Coverage(model, [nc.KMNC(10), nc.SS()])
        again.calibrate(tmp_path / "a.ncal")
    else:
        again = nc.Coverage.load(tmp_path / "a.ncov", model)
    for steps in (3, 5):
        again.update(torch.randn(2, steps, 4))
    with pytest.raises(nc.NeuralcovError, match="ran 6 steps, more than the 5"):
        again.update(torch.randn(2, 6, 4))


def test_devices_that_are_not_there(saved):
    with pytest.raises(nc.NeuralcovError, match="device 'gpu' cannot be used here"):
        nc.Coverage.of_layers({"a": 1}, [nc.NC()], device="gpu")
    with pytest.raises(nc.NeuralcovError, match="device 'gpu' cannot be used here"):
        nc.Coverage.load(saved[1], device="gpu")


def test_two_who_save_under_one_name_do_not_write_into_each_other(tmp_path, monkeypatch):
    """The second begins while the first has written half."""
    coverage = nc.Coverage.of_layers({"a": 3}, [nc.NC(0.5)])
    coverage.update(activations={"a": np.eye(3, dtype=np.float32)})
    stream, names = files._stream, []

    def interleaved(path, *rest):
        names.append(path)
        if len(names) == 1:
            coverage.save(tmp_path / "x.ncov")
        stream(path, *rest)

    monkeypatch.setattr(files, "_stream", interleaved)
    coverage.save(tmp_path / "x.ncov")
    assert len(set(names)) == 2
    assert nc.Coverage.load(tmp_path / "x.ncov").values() == coverage.values()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ncov"]
