"""Inputs that are in both suites, runs, and what files and states say of where they come from."""

import json
import struct
from dataclasses import dataclass

import pytest
import torch

import neuralcov as nc
from neuralcov.coverage.provenance import model_id
from tests.coverage.provenance_support import INPUTS, measured, network

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def metadata_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length])["__metadata__"]


def header_of(path):
    return json.loads(metadata_of(path)["header"])


# Inputs


def test_one_file_loaded_twice_does_not_merge(tmp_path):
    coverage = measured(network(), INPUTS, [nc.NC(0.5)])
    coverage.save(tmp_path / "x.ncov")
    one, other = (nc.Coverage.load(tmp_path / "x.ncov") for _ in range(2))
    with pytest.raises(nc.NeuralcovError, match=r"the run .*… of 60 inputs is in both: it would count twice"):
        one.merge(other)
    with pytest.raises(nc.NeuralcovError, match="is in both"):
        one.merge(other, overlap="allow")
    with pytest.raises(nc.NeuralcovError, match="is in both"):
        coverage + coverage
    one.update(activations={name: torch.randn(5, width) for name, width in one.layout.widths.items()})
    with pytest.raises(nc.NeuralcovError, match="of 60 inputs is in both"):
        one.merge(other)


def test_the_same_suite_measured_twice_in_other_batches_does_not_merge():
    one, other = (nc.Coverage(network(), [nc.NC(0.5)]) for _ in range(2))
    activations, _ = one.run(INPUTS)
    one.update(activations=activations)
    for rows in torch.arange(60).flip(0).split(7):
        other.update(activations=activations.take(rows))
    with pytest.raises(nc.NeuralcovError, match="of 60 inputs is in both"):
        one.merge(other)


def test_an_overlap_counts_twice_only_if_it_is_allowed():
    activations, _ = nc.Coverage(network(), [nc.NC()]).run(INPUTS)

    def part(rows, criterion):
        coverage = nc.Coverage(network(), [criterion])
        coverage.update(activations=activations.take(rows))
        return coverage

    for criterion in (nc.NLC(), nc.NLC(rule="all")):
        one, other = part(slice(0, 30), criterion), part(slice(27, 60), criterion)
        with pytest.raises(
            nc.NeuralcovError, match=r"about 10% of the inputs are in both, which NLC.* count twice: pass"
        ):
            one.merge(other)
        one.merge(other, overlap="allow")
        told = [str(finding) for finding in one.findings()]
        assert one.inputs == 63
        assert told[0] == "inputs: 3 inputs (an estimate) were in more than one of the suites merged"
        assert ["2 parts measured apart" in finding for finding in told[1:]] == [True] * (criterion.rule == "growing")
    free = part(slice(0, 30), nc.NC(0.5))
    free.merge(part(slice(27, 60), nc.NC(0.5)))
    assert [finding.inputs for finding in free.findings()] == [3]
    apart = part(slice(0, 30), nc.NLC())
    apart.merge(part(slice(30, 60), nc.NLC()))
    assert [finding.criterion for finding in apart.findings()] == ["NLC"]
    with pytest.raises(nc.NeuralcovError, match="overlap='maybe': expected 'refuse', 'allow' or 'repeat'"):
        apart.merge(free, overlap="maybe")


def test_runs_end_where_they_say(tmp_path):
    coverage = nc.Coverage(network(), [nc.NC(0.5)])
    coverage.update(INPUTS[:10])
    coverage.update(INPUTS[10:20])
    coverage.assess([INPUTS[20:30], INPUTS[30:40]])
    coverage.update(INPUTS[40:45])
    coverage.save(tmp_path / "a.ncov")
    coverage.update(INPUTS[45:])
    coverage.save(tmp_path / "b.ncov")
    runs = header_of(tmp_path / "b.ncov")["inputs"]["runs"]
    assert [run["inputs"] for run in runs] == [20, 20, 5, 15]
    assert all(run["from"] <= run["to"] and run["to"].endswith("Z") for run in runs)
    assert header_of(tmp_path / "a.ncov")["inputs"]["runs"] == runs[:3]
    with pytest.raises(nc.NeuralcovError, match="of 20 inputs is in both"):
        nc.Coverage.load(tmp_path / "a.ncov").merge(nc.Coverage.load(tmp_path / "b.ncov"))
    coverage.reset()
    coverage.update(INPUTS[:7])
    coverage.save(tmp_path / "b.ncov")
    assert [run["inputs"] for run in header_of(tmp_path / "b.ncov")["inputs"]["runs"]] == [7]


def test_only_admitted_and_committed_inputs_are_noted(tmp_path):
    coverage = nc.Coverage(network(), [nc.NC(0.5)])
    taken = coverage.admit(INPUTS)
    proposal = coverage.propose(INPUTS)
    proposal.commit([0, 1, 2])
    coverage.propose(INPUTS)
    coverage.gain(INPUTS)
    coverage.save(tmp_path / "x.ncov")
    assert sum(run["inputs"] for run in header_of(tmp_path / "x.ncov")["inputs"]["runs"]) == int(taken.sum()) + 3


def test_snapshots_carry_their_inputs(tmp_path):
    coverage = measured(network(), INPUTS[:20], [nc.NC(0.5)])
    snapshot = coverage.snapshot()
    coverage.update(INPUTS[20:])
    whole = nc.Coverage(network(), [nc.NC(0.5)])
    whole.merge(coverage)
    coverage.restore(snapshot)
    coverage.restore(snapshot)
    coverage.save(tmp_path / "x.ncov")
    assert [run["inputs"] for run in header_of(tmp_path / "x.ncov")["inputs"]["runs"]] == [20]
    coverage.reset()
    coverage.restore(snapshot)
    assert coverage.inputs == 20


def test_salted_and_no_keys_in_files(tmp_path):
    plain, salted, none = tmp_path / "plain.ncov", tmp_path / "salted.ncov", tmp_path / "none.ncov"
    measured(network(), INPUTS).save(plain)
    measured(network(), INPUTS, keys="salted", salt="mine").save(salted)
    measured(network(), INPUTS, keys="none").save(none)
    ids = [header_of(path)["inputs"]["runs"][0]["id"] for path in (plain, salted, none)]
    assert len(set(ids)) == 3
    assert ids[2] is None
    assert header_of(none)["tensors"]["inputs.sketch"]["shape"] == [0]
    again = nc.Coverage.load(salted, network(), keys="salted", salt="mine")
    with pytest.raises(nc.NeuralcovError, match="of 60 inputs is in both"):
        again.merge(nc.Coverage.load(salted))
    # Inputs of other keys cannot be compared; those to come have none in a file whose salt nobody gave.
    stranger = nc.Coverage.load(salted, network())
    stranger.update(INPUTS + 1)
    stranger.save(salted)
    assert [run["id"] for run in header_of(salted)["inputs"]["runs"]] == [ids[1], None]
    stranger.merge(nc.Coverage.load(none))
    assert stranger.inputs == 180


# The rest


def test_what_files_say(tmp_path):
    model = network()
    one = measured(model, INPUTS[:30], [nc.NC(0.5)], preprocessing={"mean": [0.5]})
    other = measured(model, INPUTS[30:], [nc.NC(0.5)], preprocessing={"mean": [0.5]})
    for name, coverage in (("a", one), ("b", other)):
        coverage.save(tmp_path / name)
    joined = nc.Coverage.load(tmp_path / "a")
    joined.merge(nc.Coverage.load(tmp_path / "b"))
    joined.save(tmp_path / "c")
    said = header_of(tmp_path / "c")
    assert said["provenance"]["model"] == {"id": model_id(model), "class": "Sequential", "parameters": 99}
    assert said["provenance"]["preprocessing"] == {"mean": [0.5]}
    assert said["provenance"]["software"]["torch"] == torch.__version__
    assert said["provenance"]["software"]["neuralcov"] == nc.__version__
    assert said["provenance"]["device"] == "cpu"
    assert said["provenance"]["parents"] == [metadata_of(tmp_path / "b")["sha256"]]
    assert [entry["definition"] for entry in said["criteria"]] == [nc.NC.definition]
    assert [entry["name"] for entry in said["criteria"]] == ["NC"]


def test_other_preprocessing_is_refused(tmp_path):
    model = network()
    one = measured(model, INPUTS[:30], preprocessing={"mean": 0.5, "std": 1})
    with pytest.raises(nc.NeuralcovError, match=r"preprocessing differs: mean 0.5 here, 0.48 there"):
        one.merge(measured(model, INPUTS[30:], preprocessing={"mean": 0.48, "std": 1}))
    with pytest.raises(nc.NeuralcovError, match=r"preprocessing differs: mean 0.5 here, 0.48 there"):
        one.restore(measured(model, INPUTS[30:], preprocessing={"mean": 0.48, "std": 1}).snapshot())
    with pytest.raises(nc.NeuralcovError, match="none was told there"):
        one.merge(measured(model, INPUTS[30:]))
    one.save(tmp_path / "x.ncov")
    assert nc.Coverage.load(tmp_path / "x.ncov", model).provenance()["preprocessing"] == {"mean": 0.5, "std": 1}
    with pytest.raises(nc.NeuralcovError, match="preprocessing differs"):
        nc.Coverage.load(tmp_path / "x.ncov", model, preprocessing="none")
    with pytest.raises(nc.NeuralcovError, match="expected text, numbers, lists and mappings"):
        nc.Coverage(model, [nc.NC()], preprocessing=torch.ones(1))


@dataclass(frozen=True, eq=False)
class Renewed(nc.NC):
    """A criterion whose definition changes while the test runs."""


def test_a_state_of_an_earlier_definition_is_shown_but_not_continued(tmp_path, monkeypatch):
    first, second = (measured(network(), part, [Renewed(0.5)]) for part in INPUTS.split(30))
    first.save(tmp_path / "a.ncov")
    second.save(tmp_path / "b.ncov")
    monkeypatch.setattr(Renewed, "definition", 2)
    old = nc.Coverage.load(tmp_path / "a.ncov", network())
    assert old.values() == first.values()
    for refused in (lambda: old.update(INPUTS), lambda: old.gain(INPUTS), lambda: old.admit(INPUTS)):
        with pytest.raises(nc.NeuralcovError, match=r"Renewed\(0.5\): measured under definition 1.*: measure again"):
            refused()
    fresh = measured(network(), INPUTS[30:], [Renewed(0.5)])
    message = r"Renewed\(0.5\): this coverage has definition 2, the other 1: measure again with one version"
    with pytest.raises(nc.NeuralcovError, match=message):
        fresh.merge(old)
    with pytest.raises(nc.NeuralcovError, match=r"this coverage has definition 2, the snapshot 1"):
        fresh.restore(old.snapshot())
    old.merge(nc.Coverage.load(tmp_path / "b.ncov"))
    old.save(tmp_path / "c.ncov")
    assert header_of(tmp_path / "c.ncov")["criteria"][0]["definition"] == 1
    assert header_of(tmp_path / "c.ncov")["criteria"][0]["name"] == "tests.Renewed"
    # Empty again, it measures as this version does.
    old.reset()
    old.update(INPUTS[30:])
    assert old.values() == fresh.values()


def test_load_state_replaces_the_state(tmp_path):
    coverage = nc.Coverage(network(), [nc.KMNC(10)])
    coverage.calibrate([INPUTS])
    coverage.update(INPUTS[:30])
    coverage.save(tmp_path / "x.ncov")
    values = coverage.values()
    coverage.update(INPUTS[30:])
    coverage.load_state(tmp_path / "x.ncov")
    assert (coverage.values(), coverage.inputs) == (values, 30)
    coverage.update(INPUTS[30:])
    fresh = nc.Coverage(network(), [nc.KMNC(10)])
    fresh.calibrate([INPUTS])
    fresh.load_state(tmp_path / "x.ncov")
    fresh.update(INPUTS[30:])
    assert fresh.values() == coverage.values()
    with pytest.raises(nc.NeuralcovError, match="criteria differ"):
        nc.Coverage(network(), [nc.NC()]).load_state(tmp_path / "x.ncov")
    with pytest.raises(nc.NeuralcovError, match="calibrations differ"):
        nc.Coverage(network(), [nc.KMNC(10)]).load_state(tmp_path / "x.ncov")
    other = nc.Coverage.of_layers({"a": 2}, [nc.NC(0.5)])
    measured(network(), INPUTS, [nc.NC(0.5)]).save(tmp_path / "x.ncov")
    with pytest.raises(nc.NeuralcovError, match=r"x.ncov lacks layer 'a'"):
        other.load_state(tmp_path / "x.ncov")
