import struct

import numpy as np
import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.core import files
from tests.coverage.saved_files import CRITERIA, INPUTS, network, save_both

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture
def saved(tmp_path):
    return save_both(tmp_path)


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


def test_no_module_path_is_written(saved, tmp_path):
    """Classes may move: files know records and criteria by declared names."""
    criteria = [
        *(nc.TKNP(2), nc.SS(), nc.CC(1.5), nc.LSC(10), nc.DSC(0.1), nc.MDSC(1)),
        *(nc.NPC(clusters=2, buckets=10), nc.NPC(clusters=2, buckets=10, mode="activation"), nc.NLC(classes=3)),
    ]
    classes = torch.arange(60) % 3
    layers = {"a": torch.randn(60, 4), "b": torch.randn(60, 4)}
    batch = nc.Activations(layers, labels=classes, predictions=classes, relevance=layers)
    coverage = nc.Coverage.of_layers({"a": 4, "b": 4}, criteria)
    coverage.calibrate(activations=batch)
    coverage.update(activations=batch)
    coverage.save(tmp_path / "more.ncov")
    coverage.save_calibration(tmp_path / "more.ncal")
    for path in (*saved[1:], tmp_path / "more.ncov", tmp_path / "more.ncal"):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        head = content[8 : 8 + length].decode()
        assert "neuralcov." not in head
        assert "neuralcov/" not in head
    again = nc.Coverage.load(tmp_path / "more.ncov", calibration=tmp_path / "more.ncal")
    assert again.values() == coverage.values()
    assert again.calibration_ids() == coverage.calibration_ids()
    # Digests in the file are those of the calibration: nothing of it is hashed again to know it.
    again.update(activations=batch)


def test_bytes_go_where_files_cannot(saved):
    coverage, _, calibration = saved
    data = coverage.to_bytes()
    assert nc.Coverage.from_bytes(data, network()).values() == coverage.values()
    assert nc.Coverage.from_bytes(data, calibration=calibration).values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="the bytes: not a neuralcov file, or cut short"):
        nc.Coverage.from_bytes(data[:-1])
    with pytest.raises(nc.NeuralcovError, match="predict= needs a model"):
        nc.Coverage.from_bytes(data, predict=len)
    with pytest.raises(nc.NeuralcovError, match="nothing to save"):
        nc.Coverage(network(), [nc.NC()]).to_bytes()


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

    monkeypatch.setattr("neuralcov.core.files.os.fsync", full)
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
    sync, names = files.os.fsync, []

    def interleaved(handle):
        names.extend(path.name for path in tmp_path.glob("*.unfinished"))
        if len(names) == 1:
            coverage.save(tmp_path / "x.ncov")
        sync(handle)

    monkeypatch.setattr(files.os, "fsync", interleaved)
    coverage.save(tmp_path / "x.ncov")
    assert len(set(names)) == 2
    assert nc.Coverage.load(tmp_path / "x.ncov").values() == coverage.values()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ncov"]


def test_states_of_float64_outputs_load(tmp_path):
    """Centres of clusters have the type of the outputs they came from."""
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.CC(0.5)])
    coverage.update(activations={"fc": np.random.default_rng(0).standard_normal((9, 3))})
    coverage.save(tmp_path / "a.ncov")
    assert nc.Coverage.load(tmp_path / "a.ncov").values() == coverage.values()
