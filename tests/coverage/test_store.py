import hashlib
import json
import re
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import neuralcov as nc
from neuralcov.core import container, files
from neuralcov.core.container import canonical
from neuralcov.core.errors import StateFileError

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
    with pytest.raises(nc.NeuralcovError, match=r"training.ncal: a calibration, expected a state"):
        nc.Coverage.load(saved[2])
    with pytest.raises(nc.NeuralcovError, match=r"suite.ncov: a state, expected a calibration"):
        nc.Coverage(network(), [nc.NC()]).calibrate(saved[1])


def rewritten(path, change, drop=()):
    """The same file with its metadata changed."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(length))["__metadata__"]
    change(metadata)
    save_file({name: tensor for name, tensor in load_file(path).items() if name not in drop}, path, metadata)


def test_a_future_version_names_both(saved):
    rewritten(saved[1], lambda metadata: metadata.update(neuralcov="99"))
    with pytest.raises(nc.NeuralcovError, match="written with file schema 99, this neuralcov reads up to 2: upgrade"):
        nc.Coverage.load(saved[1])


def edit_header(path, change, drop=()):
    """The same file with its header changed by somebody who has its SHA-256 fit."""

    def edit(metadata):
        header = json.loads(metadata["header"])
        change(header)
        metadata["header"] = canonical(header)
        metadata["sha256"] = hashlib.sha256(metadata["header"].encode()).hexdigest()

    rewritten(path, edit, drop)


def first(header):
    return header["criteria"][0]


def widened(header):
    header["layout"][0][1] = 10**12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.pop("layout"), "the header is damaged"),
        (lambda h: first(h).update(name="Foreign"), "holds the criterion 'Foreign', which no installed package"),
        (lambda h: first(h).update(name="acme.NLC"), "holds the criterion 'acme.NLC', which no installed package"),
        (lambda h: first(h).update(definition=99), "NLC was measured under definition 99, this neuralcov knows up to"),
        (lambda h: first(h)["state"].update(record="os:system"), "nlc is 'os:system', expected 'nlc'"),
        (lambda h: first(h)["state"].update(record="bitmap"), "nlc is 'bitmap', expected 'nlc'"),
        (lambda h: first(h)["state"]["fields"].pop("classes"), "nlc lacks the field 'classes'"),
        (lambda h: first(h)["state"]["fields"].update(extra=[]), "nlc has a field 'extra'"),
        (lambda h: first(h)["state"]["fields"].update(widths=[]), "nlc.widths has 0 parts, expected 2"),
        (lambda h: first(h)["state"]["fields"]["widths"][0].update(value=9), "nlc.widths.0 is 9, expected 8"),
        (lambda h: first(h)["state"]["fields"].update(counts={"value": 3}), "nlc.counts is 3, expected a tensor"),
        (lambda h: first(h)["state"]["fields"]["counts"].update(tensor="x"), "the tensor 'x' is missing from the file"),
        (
            lambda h: first(h)["state"]["fields"]["counts"].update(tensor="nbc.counts.0"),
            "the tensor 'nbc.counts.0' is missing",
        ),
        (
            lambda h: first(h)["state"]["fields"]["counts"].update(tensor="nlc.classes.0.0.moments.mean"),
            "nlc.classes.0.0.moments.mean holds float64, expected int64",
        ),
        (lambda h: h["layout"][0].__setitem__(1, 7), "widths.0 is 8, expected 7"),
        (widened, "NLC: layer .* would take .* but memory="),
        (lambda h: first(h)["parameters"].update(rule="?"), "suite.ncov: NLC.*rule must be"),
        (lambda h: first(h)["parameters"].update(extra=1), "the header is damaged"),
        (lambda h: h.pop("tensors"), "the header is damaged"),
        (lambda h: h["tensors"]["nlc.counts"].update(shape=[10**12]), "the header is damaged"),
        (lambda h: h["tensors"]["nc_0.5.covered.0"].update(shape=[10**12]), "the header is damaged"),
        (lambda h: h["tensors"]["nlc.counts"].update(dtype="float64"), "the header is damaged"),
        (lambda h: h["inputs"].update(sketch={"tensor": "kmnc_10.learnt.low.0"}), "expected at most 4096 words"),
    ],
)
def test_damaged_headers(saved, change, message):
    edit_header(saved[1], change)
    with pytest.raises(StateFileError, match=message):
        nc.Coverage.load(saved[1])


def test_a_shape_that_the_layers_do_not_allow(saved):
    _, path, _ = saved
    other = nc.Coverage(network((9, 3)), [nc.NLC()])
    other.update(INPUTS)
    other.save(path)
    edit_header(path, lambda h: h.update(layout=[["0", 8], ["2", 3]]))
    edit_header(path, lambda h: first(h)["state"]["fields"]["widths"][0].update(value=8))
    with pytest.raises(nc.NeuralcovError, match=r"moments.mean has shape \(1, 9\), the layers allow \(1, 8\)"):
        nc.Coverage.load(path)


def test_nothing_is_allocated_for_a_shape_that_is_not_there(saved, monkeypatch):
    """What a header promises is compared with the bytes of the file, and with the layers, before anything is read."""
    edit_header(saved[1], lambda h: h["tensors"]["nlc.classes.0.0.moments.scatter"].update(shape=[10**6, 10**6]))
    monkeypatch.setattr(container.Container, "read", lambda *arguments, **more: pytest.fail("a tensor was read"))
    with pytest.raises(nc.NeuralcovError, match="the header is damaged"):
        nc.Coverage.load(saved[1])


def test_a_missing_tensor(saved):
    edit_header(saved[1], lambda h: h["tensors"].pop("nlc.counts"), drop=["nlc.counts"])
    with pytest.raises(nc.NeuralcovError, match=r"the tensor 'nlc.counts' is missing"):
        nc.Coverage.load(saved[1])


def test_a_flipped_byte_is_found_wherever_it_is(saved):
    """Every 7th byte of the head and one in every tensor: refused in one sentence, never something else."""
    _, path, calibration = saved
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    places = [*range(0, 8 + length, 7)]
    for entry in entries.values():
        start, end = entry.get("data_offsets", (0, 0))
        if end > start:
            places.append(8 + length + (start + end) // 2)
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        with pytest.raises(StateFileError):
            nc.Coverage.from_bytes(bytes(damaged))
    content = bytearray(calibration.read_bytes())
    content[-1] ^= 1
    calibration.write_bytes(bytes(content))
    with pytest.raises(StateFileError, match=r"the tensor calibration\..* is damaged \(its SHA-256 does not fit\)"):
        nc.Coverage(network(), CRITERIA).calibrate(calibration)


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


def _learnt(header):
    return first(header)["learnt"]["fields"]


@pytest.mark.parametrize(
    ("criterion", "change", "message"),
    [
        (nc.NLC(rule="all"), lambda h: first(h).update(learnt=[]), "NLC(rule=all) learns nothing"),
        (nc.CC(1), lambda h: first(h).update(learnt={"value": 3}), "CC(1) learns nothing"),
        (nc.LVC(), lambda h: _learnt(h)["training"].pop(), "lvc.learnt.training has 1 parts, expected 2"),
        (
            nc.LVC(),
            lambda h: _learnt(h)["training"][0]["fields"].update(varies=_learnt(h)["limit"]),
            "limit holds float64",
        ),
        (nc.LVC(), lambda h: _learnt(h)["names"].__setitem__(0, {"value": 3}), "lvc.learnt.names.0 is 3"),
        (nc.LVC(), lambda h: _learnt(h).update(constant=[{"value": 3}]), "constant layers (3,)"),
        (nc.LVC(groups=2), lambda h: first(h)["parameters"].update(groups=10**9), "groups must be at most 1,000"),
        (nc.LCC(), lambda h: _learnt(h).update(levels=_learnt(h)["layers"]), "numbers of kinds for"),
    ],
)
def test_what_a_criterion_learnt_is_checked(tmp_path, criterion, change, message):
    """Against the layers, in files that somebody made who can write checksums."""
    cov = nc.Coverage.of_layers({"a": 3, "b": 2}, [criterion])
    layers = {"a": torch.randn(60, 3), "b": torch.randn(60, 2)}
    if criterion.learns:
        cov.calibrate(activations=[nc.Activations(layers=layers)])
    cov.update(activations=layers)
    cov.save(tmp_path / "x.ncov")
    edit_header(tmp_path / "x.ncov", change)
    with pytest.raises(nc.NeuralcovError, match=re.escape(message)):
        nc.Coverage.load(tmp_path / "x.ncov")
