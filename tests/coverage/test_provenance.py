"""Coverages that do not belong together are refused: other weights, calibrations, or inputs that are there already."""

import copy
import json
import struct
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.coverage.provenance import model_id

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def measured(model, inputs, criteria=None, **options):
    coverage = nc.Coverage(model, criteria or [nc.NLC()], **options)
    coverage.update(inputs)
    return coverage


def metadata_of(path):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length])["__metadata__"]


def header_of(path):
    return json.loads(metadata_of(path)["header"])


# Models


def test_an_id_tells_names_types_shapes_and_values():
    ids = {model_id(network())}
    assert {model_id(network()), model_id(copy.deepcopy(network()))} == ids
    for change in (
        lambda net: net[0].weight.data.view(-1)[3:4].add_(1e-6),
        lambda net: net[1].running_mean.add_(1e-6),
        lambda net: net.half(),
        lambda net: net.append(nn.Linear(3, 1)),
        lambda net: setattr(net, "3", nn.Linear(8, 3)),
    ):
        model = network()
        change(model)
        ids.add(model_id(model))
    assert len(ids) == 6


def test_an_id_follows_the_weights():
    model = network()
    before = model_id(model)
    with torch.no_grad():
        model[3].bias[0] += 1
    changed = model_id(model)
    assert changed != before
    model[1].running_var.mul_(2)
    assert model_id(model) not in (before, changed)
    with torch.no_grad():
        model[3].bias[0] -= 1
    model[1].running_var.div_(2)
    assert model_id(model) == before


def test_wrappers_and_devices_are_no_part_of_a_model():
    model = network()
    first = measured(model, INPUTS[:30])
    first.merge(measured(torch.compile(model), INPUTS[30:]))
    assert first.inputs == 60


def test_two_networks_of_one_layout_do_not_merge(tmp_path):
    one, other = measured(network(), INPUTS[:30]), measured(network(1), INPUTS[30:])
    ids = [f"{coverage.provenance()['model']['id'][:12]}…" for coverage in (one, other)]
    with pytest.raises(nc.NeuralcovError, match=f"models differ: this coverage was measured on weights {ids[0]}, the "):
        one.merge(other)
    with pytest.raises(nc.NeuralcovError, match=f"the other on {ids[1]}"):
        one + other
    with pytest.raises(nc.NeuralcovError, match="models differ"):
        one.restore(other.snapshot())
    with pytest.raises(nc.NeuralcovError, match="models differ"):
        nc.Coverage(network(), [nc.NLC()]).merge(other)
    other.save(tmp_path / "other.ncov")
    message = rf"other.ncov was measured on weights {ids[1]}, this model has {ids[0]}: load those weights"
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage.load(tmp_path / "other.ncov", network())
    with pytest.raises(nc.NeuralcovError, match=message):
        one.load_state(tmp_path / "other.ncov")
    assert nc.Coverage.load(tmp_path / "other.ncov").values() == other.values()
    assert nc.Coverage.load(tmp_path / "other.ncov", network(1)).values() == other.values()


def test_a_model_that_nobody_knows_does_not_merge_with_one_that_is_known():
    known = measured(network(), INPUTS)
    unknown = nc.Coverage.of_layers(known.layout.widths, [nc.NLC()])
    unknown.update(activations={name: torch.randn(5, width) for name, width in known.layout.widths.items()})
    with pytest.raises(nc.NeuralcovError, match="the other does not say"):
        known.merge(unknown)
    with pytest.raises(nc.NeuralcovError, match="this coverage does not say, the other on"):
        unknown.merge(known)
    # An empty one without a model claims nothing: it becomes what it takes in.
    empty = nc.Coverage.of_layers(known.layout.widths, [nc.NLC()])
    empty.merge(known)
    assert empty.provenance()["model"] == known.provenance()["model"]


# Weights that change


def test_weights_that_change_between_updates_are_refused(tmp_path):
    model = network()
    coverage = measured(model, INPUTS[:30])
    with torch.no_grad():
        model[0].weight[0, 0] += 1
    message = r"the weights changed since the first of these inputs: reset\(\) or a new Coverage"
    for refused in (
        lambda: coverage.update(INPUTS[30:]),
        lambda: coverage.assess([INPUTS[30:]]),
        lambda: coverage.admit(INPUTS[30:]),
        lambda: coverage.gain(INPUTS[30:]),
        lambda: coverage.propose(INPUTS[30:]),
        lambda: coverage.save(tmp_path / "x.ncov"),
    ):
        with pytest.raises(nc.NeuralcovError, match=message):
            refused()
    assert coverage.inputs == 30
    coverage.reset()
    coverage.update(INPUTS)
    assert coverage.inputs == 60


def trained(model):
    optimiser = torch.optim.Adam(model.parameters())
    model(INPUTS).sum().backward()
    optimiser.step()


@pytest.mark.parametrize(
    "change",
    [
        trained,
        lambda model: model.load_state_dict(network(1).state_dict()),
        lambda model: setattr(model[0], "weight", nn.Parameter(torch.zeros(8, 6))),
        lambda model: setattr(model[0].weight, "data", torch.zeros(8, 6)),
        lambda model: model.load_state_dict(network(1).state_dict(), assign=True),
    ],
    ids=["optimiser", "load", "another parameter", "data", "assign"],
)
def test_every_way_to_change_weights_is_seen(change):
    model = network()
    coverage = measured(model, INPUTS[:30])
    change(model)
    with pytest.raises(nc.NeuralcovError, match="the weights changed"):
        coverage.update(INPUTS[30:])


def test_within_a_block_too():
    model = network()
    coverage = nc.Coverage(model, [nc.NLC()])

    def batches():
        yield INPUTS[:30]
        trained(model)
        yield INPUTS[30:]

    with pytest.raises(nc.NeuralcovError, match="the weights changed"):
        coverage.assess(batches())


def test_buffers_that_the_tap_puts_back_are_no_change(tmp_path):
    model = network().train()
    coverage = nc.Coverage(model, [nc.NLC()], mode="keep")
    for part in INPUTS.split(20):
        coverage.update(part)
    before = coverage.provenance()["model"]["id"]
    coverage.assess([INPUTS + 1])
    assert coverage.provenance()["model"]["id"] == before == model_id(model)
    coverage.save(tmp_path / "x.ncov")
    nc.Coverage.load(tmp_path / "x.ncov", network())


def test_the_same_weights_elsewhere_are_the_same_weights(tmp_path):
    model = network()
    coverage = measured(model, INPUTS[:30])
    coverage.save(tmp_path / "x.ncov")
    model.load_state_dict(network().state_dict())
    coverage.update(INPUTS[30:])
    assert coverage.inputs == 60


def test_models_of_inference_mode_and_lazy_ones_are_measured():
    with torch.inference_mode():
        model = network()
    coverage = measured(model, INPUTS[:30])
    coverage.update(INPUTS[30:])
    lazy = nc.Coverage(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2)), [nc.NC(0.5)])
    lazy.update(INPUTS[:30])
    lazy.update(INPUTS[30:])
    assert coverage.inputs == lazy.inputs == 60


def test_a_snapshot_knows_its_weights():
    model = network()
    coverage = measured(model, INPUTS[:30])
    snapshot = coverage.snapshot()
    coverage.reset()
    trained(model)
    coverage.update(INPUTS[:30])
    coverage.restore(snapshot)
    with pytest.raises(nc.NeuralcovError, match="the weights changed"):
        coverage.update(INPUTS[30:])


# Calibration


def test_a_calibration_of_other_weights_is_refused(tmp_path):
    taught = nc.Coverage(network(), [nc.KMNC(10)])
    taught.calibrate([INPUTS])
    taught.save_calibration(tmp_path / "train.ncal")
    ids = [f"{model_id(network(seed))[:12]}…" for seed in (0, 1)]
    message = rf"train.ncal was made with weights {ids[0]}, this model has {ids[1]}: calibrate again"
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage(network(1), [nc.KMNC(10)]).calibrate(tmp_path / "train.ncal")
    other = nc.Coverage(network(), [nc.KMNC(10)])
    other.calibrate(tmp_path / "train.ncal")
    other.update(INPUTS)
    bare = nc.Coverage.of_layers(other.layout.widths, [nc.KMNC(10)])
    bare.calibrate(tmp_path / "train.ncal")
    assert bare.calibration_ids() == other.calibration_ids() == taught.calibration_ids()


def test_weights_that_change_after_calibration_are_refused(tmp_path):
    model = network()
    coverage = nc.Coverage(model, [nc.KMNC(10)])
    coverage.calibrate([INPUTS])
    trained(model)
    for refused in (lambda: coverage.update(INPUTS), lambda: coverage.save_calibration(tmp_path / "x.ncal")):
        with pytest.raises(nc.NeuralcovError, match="the weights changed since calibration: calibrate again"):
            refused()
    coverage.calibrate([INPUTS])
    coverage.save_calibration(tmp_path / "x.ncal")
    trained(model)
    with pytest.raises(
        nc.NeuralcovError, match=r"the calibration was made with weights .*, this model has .*: calibrate"
    ):
        coverage.update(INPUTS)


def test_where_traces_lie_is_no_part_of_a_calibration(tmp_path):
    classes = torch.arange(60) % 3
    batch = nc.Activations({"a": INPUTS}, predictions=classes)
    ids = []
    for memory in ("16GiB", "1KiB"):
        coverage = nc.Coverage.of_layers({"a": 6}, [nc.DSC(0.1, memory=memory)])
        coverage.calibrate(activations=batch)
        ids.append(coverage.calibration_ids()["DSC(0.1)"])
        coverage.save_calibration(tmp_path / "x.ncal")
        again = nc.Coverage.of_layers({"a": 6}, [nc.DSC(0.1)])
        again.calibrate(tmp_path / "x.ncal")
        ids.append(again.calibration_ids()["DSC(0.1)"])
    assert len(set(ids)) == 1


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
