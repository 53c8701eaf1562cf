"""Files that are cut, foreign or changed, with checksums that fit or not: one sentence each."""

import json
import re
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov.core import container
from neuralcov.core.errors import StateFileError
from tests.coverage.saved_files import CRITERIA, INPUTS, edit_header, first, network, rewritten, save_both

GOLDEN = Path(__file__).parents[1] / "golden" / "schema-1"
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture
def saved(tmp_path):
    return save_both(tmp_path)


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


def test_a_future_version_names_both(saved):
    rewritten(saved[1], lambda metadata: metadata.update(neuralcov="99"))
    with pytest.raises(nc.NeuralcovError, match="written with file schema 99, this neuralcov reads up to 2: upgrade"):
        nc.Coverage.load(saved[1])


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


def test_a_state_that_says_it_is_of_an_older_definition_is_checked_too(saved):
    """States of an earlier definition that were loaded and saved again have today's form."""

    def older(header):
        entry = next(entry for entry in header["criteria"] if entry["name"] == "LVC")
        entry["definition"] = 1
        entry["state"]["fields"]["folds"][0].pop()

    edit_header(saved[1], older)
    with pytest.raises(StateFileError, match=r"lvc_groups_2.folds.0 has 1 parts, expected 2"):
        nc.Coverage.load(saved[1])


def _drop_layer(fields):
    fields["blocks"][0].pop()


def _other_seen(fields):
    fields["seen"] = {"value": "many"}


@pytest.mark.parametrize(
    ("name", "part", "change"),
    [
        ("lvc", "state", _drop_layer),
        ("lvc", "fitted", _other_seen),
        ("lvc", "fitted", lambda fields: fields.update(constant=[{"value": None}])),
        ("lvc", "state", lambda fields: fields.update(counts={"value": 3})),
        ("lsc", "state", lambda fields: fields.update(counts=[])),
        ("dsc", "state", lambda fields: fields["widths"].__setitem__(0, {"value": {"a": 1}})),
        ("mdsc", "state", lambda fields: fields.update(counts=fields["covered"])),
    ],
)
def test_files_of_schema_1_of_older_definitions_are_checked_once_they_have_todays_form(tmp_path, name, part, change):
    content = (GOLDEN / f"{name}.ncov").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["header"])
    change(header["criteria"][0][part]["fields"])
    entries["__metadata__"]["header"] = json.dumps(header)
    head = json.dumps(entries).encode()
    with pytest.raises(StateFileError):
        nc.Coverage.from_bytes(struct.pack("<Q", len(head)) + head + content[8 + length :])
