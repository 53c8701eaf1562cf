"""Coverages that do not belong together are refused: other weights, calibrations, or inputs that are there already."""

import copy

import pytest
import torch
from torch import nn

import neuralcov as nc
from neuralcov.coverage.provenance import model_id
from tests.coverage.provenance_support import INPUTS, measured, network

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


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
