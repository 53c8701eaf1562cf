import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc
from neuralcov.core.errors import StaleProposalError
from tests.coverage.coverage_support import CRITERIA, make_inputs, make_net


@pytest.fixture
def net():
    return make_net()


@pytest.fixture
def inputs():
    return make_inputs()


def test_values_are_floats_in_the_order_given(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    assert coverage.values() == {"NLC": 0.0, "NC(0.5)": 0.0, "TKNC(2)": 0.0}
    coverage.update(inputs)
    values = coverage.values()
    assert list(values) == ["NLC", "NC(0.5)", "TKNC(2)"]
    assert all(type(value) is float and value > 0 for value in values.values())


@pytest.mark.parametrize(
    ("criterion", "name"),
    [
        (nc.NLC(), "NLC"),
        (nc.NLC(rule="all"), "NLC(rule=all)"),
        (nc.NLC(classes=10, rule="all"), "NLC(rule=all, classes=10)"),
        (nc.NC(), "NC(0.75)"),
        (nc.NC(0.5), "NC(0.5)"),
        (nc.KMNC(1000), "KMNC(1000)"),
        (nc.NBC(), "NBC"),
        (nc.LVC(relative=True), "LVC(relative=True)"),
    ],
)
def test_names(criterion, name):
    assert criterion.name == name


def test_assess_equals_updates(net, inputs):
    labels = torch.zeros(40, dtype=torch.long)
    whole = nc.Coverage(net, CRITERIA)
    whole.assess(DataLoader(TensorDataset(inputs, labels), batch_size=10))
    parts = nc.Coverage(net, CRITERIA)
    for start in range(0, 40, 10):
        parts.update(inputs[start : start + 10], labels[start : start + 10])
    assert whole.values() == parts.values()
    assert whole.inputs == 40


def test_activations_in_place_of_inputs(net, inputs):
    by_model = nc.Coverage(net, CRITERIA)
    by_model.update(inputs)
    with torch.no_grad():
        first = net[0](inputs)
        outputs = {"0": first.numpy(), "2": net(inputs).numpy()}
    bare = nc.Coverage.of_layers({"0": 8, "2": 3}, CRITERIA)
    bare.update(activations=outputs)
    assert bare.values() == by_model.values()
    assert [(row.layer, row.neurons) for row in bare.by_layer()] == [("0", 8), ("2", 3)]


def test_layers_may_come_in_any_order(inputs):
    outputs = {"a": np.ones((2, 3), np.float32), "b": np.arange(4, dtype=np.float32).reshape(2, 2)}
    one, other = (nc.Coverage.of_layers({"a": 3, "b": 2}, CRITERIA) for _ in range(2))
    one.update(activations=outputs)
    other.update(activations=dict(reversed(outputs.items())))
    assert one.values() == other.values()


def test_one_pass_calibrates_all(net, inputs):
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    coverage = nc.Coverage(net, [nc.KMNC(10), nc.NBC(), nc.SNAC(), nc.LVC()])
    coverage.probe(inputs)
    calls.clear()
    coverage.calibrate([inputs[:20], inputs[20:]])
    assert len(calls) == 2
    assert coverage.inputs == 0


def test_calibrating_is_not_covering(net, inputs):
    coverage = nc.Coverage(net, [nc.KMNC(10), nc.NC(0.5)])
    coverage.calibrate([inputs])
    assert coverage.values() == {"KMNC(10)": 0.0, "NC(0.5)": 0.0}


def test_a_second_calibration_replaces_and_one_after_update_is_refused(net, inputs):
    coverage = nc.Coverage(net, [nc.KMNC(10)])
    coverage.calibrate([inputs])
    first = coverage.calibration_ids()["KMNC(10)"]
    coverage.calibrate([inputs[:5]])
    assert coverage.calibration_ids()["KMNC(10)"] != first
    coverage.update(inputs)
    with pytest.raises(nc.NeuralcovError, match="calibrate comes before the first update"):
        coverage.calibrate([inputs])
    coverage.reset()
    coverage.calibrate([inputs])
    assert coverage.calibration_ids()["KMNC(10)"] == first


def test_use_before_calibration(net, inputs):
    coverage = nc.Coverage(net, [nc.KMNC(10)])
    for attempt in (coverage.values, lambda: coverage.update(inputs), lambda: coverage.gain(inputs)):
        with pytest.raises(nc.NeuralcovError, match=r"KMNC\(10\) needs calibration"):
            attempt()


def test_gain_changes_nothing_and_propose_commits(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.update(inputs[:10])
    before = coverage.values()
    proposal = coverage.propose(inputs[10:20])
    assert coverage.values() == before
    proposal.commit([2, 5])
    step_by_step = nc.Coverage(net, CRITERIA)
    step_by_step.update(inputs[:10])
    activations = nc.Coverage(net, CRITERIA).run(inputs[10:20], predictions=False)[0]
    for row in (2, 5):
        step_by_step.update(activations=activations.take(slice(row, row + 1)))
    assert coverage.values() == step_by_step.values()


@pytest.mark.parametrize("keep", [None, [True] * 10, torch.arange(10), np.arange(10)])
def test_commit_all(net, inputs, keep):
    coverage = nc.Coverage(net, [nc.NC(0.5)])
    coverage.propose(inputs[:10]).commit(keep)
    assert coverage.inputs == 10


def test_commit_none(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.propose(inputs[:10]).commit([])
    assert coverage.inputs == 0


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ([True], "a mask of 10 inputs"),
        ([11], "names input 11"),
        ([-1, 3], "names input -1"),
        ([0.5], "a mask or indices"),
    ],
)
def test_commit_of_something_else(net, inputs, keep, message):
    proposal = nc.Coverage(net, CRITERIA).propose(inputs[:10])
    with pytest.raises(nc.NeuralcovError, match=message):
        proposal.commit(keep)


def test_a_stale_proposal_is_refused(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    proposal, other = coverage.propose(inputs[:10]), coverage.propose(inputs[10:20])
    other.commit()
    with pytest.raises(StaleProposalError, match="has changed since this proposal"):
        proposal.commit()
    with pytest.raises(StaleProposalError):
        other.commit()


def test_snapshot_restore_reset(net, inputs):
    coverage = nc.Coverage(net, [*CRITERIA, nc.KMNC(10), nc.LVC(), nc.NLC(rule="all")])
    coverage.calibrate([inputs])
    empty = coverage.snapshot()
    coverage.update(inputs[:10])
    kept, values = coverage.snapshot(), coverage.values(warn=False)
    for start in (10, 20, 30):
        coverage.update(inputs[start : start + 10])
    assert coverage.values(warn=False) != values
    coverage.restore(kept)
    assert coverage.values(warn=False) == values
    coverage.update(inputs[10:20])
    coverage.restore(kept)
    assert coverage.values(warn=False) == values
    coverage.restore(empty)
    assert coverage.inputs == 0
    coverage.restore(kept)
    coverage.reset()
    assert coverage.inputs == 0
    coverage.update(inputs[:10])
    assert coverage.values(warn=False) == values


def test_a_snapshot_of_another_model_is_refused(net, inputs):
    coverage, other = nc.Coverage(net, [nc.NC()]), nc.Coverage(nn.Linear(3, 2), [nc.NC()])
    coverage.update(inputs)
    other.update(torch.randn(4, 3))
    with pytest.raises(nc.NeuralcovError, match="the snapshot"):
        coverage.restore(other.snapshot())
    with pytest.raises(nc.NeuralcovError, match="a str is no snapshot"):
        coverage.restore("x")


def test_thresholds_that_differ_slightly_have_different_names(net, inputs):
    first, second = (nc.Coverage(net, [nc.NC(threshold)]) for threshold in (0.7500001, 0.75000011))
    assert first.criteria[0].name == "NC(0.7500001)"
    first.update(inputs)
    second.update(inputs)
    with pytest.raises(nc.NeuralcovError, match="criteria differ"):
        first.merge(second)


def test_merge_and_sum(net, inputs):
    criteria = [nc.NC(0.5), nc.NLC(rule="all"), nc.KMNC(10)]
    parts = []
    for start in (0, 20):
        part = nc.Coverage(net, criteria)
        part.calibrate([inputs])
        part.update(inputs[start : start + 20])
        parts.append(part)
    before = [part.values() for part in parts]
    whole = nc.Coverage(net, criteria)
    whole.calibrate([inputs])
    whole.update(inputs)
    total = sum(parts)
    assert total.values() == pytest.approx(whole.values())
    assert [part.values() for part in parts] == before
    total.update(inputs)
    assert [part.values() for part in parts] == before
    parts[0].merge(parts[1])
    assert parts[0].values() == pytest.approx(whole.values())
    assert parts[1].values() == before[1]
    parts[0].update(3 * inputs)
    assert parts[1].values() == before[1]


def test_merge_refuses_what_does_not_belong(net, inputs):
    def made(criteria, calibration=inputs, widths=None):
        coverage = nc.Coverage(net, criteria) if widths is None else nc.Coverage.of_layers(widths, criteria)
        if any(criterion.learns for criterion in criteria):
            coverage.calibrate([calibration])
        return coverage

    one = made([nc.KMNC(10)])
    one.update(inputs)
    with pytest.raises(nc.NeuralcovError, match=r"criteria differ: this coverage has KMNC\(10\), .* has KMNC\(20\)"):
        one.merge(made([nc.KMNC(20)]))
    other = made([nc.KMNC(10)], inputs[:7])
    other.update(inputs)
    ids = one.calibration_ids()["KMNC(10)"][:12] + "…", other.calibration_ids()["KMNC(10)"][:12]
    with pytest.raises(nc.NeuralcovError, match=f"calibrations differ: this coverage has {ids[0]}, .* has {ids[1]}"):
        one.merge(other)
    with pytest.raises(nc.NeuralcovError, match="calibrations differ"):
        one.restore(other.snapshot())
    two = made([nc.NC()])
    two.update(inputs)
    three = made([nc.NC()], widths={"0": 8, "2": 4})
    three.update(activations={"0": torch.zeros(1, 8), "2": torch.zeros(1, 4)})
    with pytest.raises(nc.NeuralcovError, match="layer '2' has 4 neurons in the other coverage but 3"):
        two.merge(three)


def test_by_layer(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.update(inputs)
    rows = coverage.by_layer()
    assert [(row.layer, row.neurons) for row in rows] == [("0", 8), ("2", 3)]
    assert sum(row.values["NLC"] for row in rows) == pytest.approx(coverage.values()["NLC"])
    assert sum(row.values["NC(0.5)"] * row.neurons for row in rows) / 11 == pytest.approx(coverage.values()["NC(0.5)"])


def test_scores_are_empty_without_a_surprise_criterion(net, inputs):
    assert nc.Coverage(net, CRITERIA).scores(inputs) == {}


def test_calibration_from_several_mappings_of_activations():
    parts = [{"a": torch.randn(5, 3)} for _ in range(3)]
    one, other = (nc.Coverage.of_layers({"a": 3}, [nc.KMNC(10)]) for _ in range(2))
    one.calibrate(activations=parts)
    other.calibrate(activations={"a": torch.cat([part["a"] for part in parts])})
    assert one.calibration_ids() == other.calibration_ids()


def test_half_of_a_batch_size_agrees_with_the_whole(net, inputs):
    criteria = [nc.NLC(rule="all"), nc.NC(0.5), nc.LVC(), nc.KMNC(50)]
    values = []
    for size in (1, 7, 40):
        coverage = nc.Coverage(net, criteria)
        coverage.calibrate([inputs * 1.2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.assess([inputs[i : i + size] for i in range(0, 40, size)])
        values.append(coverage.values(warn=False))
    assert values[0] == pytest.approx(values[2], rel=1e-5)
    assert values[1] == pytest.approx(values[2], rel=1e-5)


@pytest.mark.parametrize(
    "criteria",
    [[nc.NLC()], [nc.NC(0.5)], [nc.NLC(rule="all")], [nc.NC(0.5), nc.NLC()]],
    ids=lambda c: str(len(c)) + c[0].name,
)
@pytest.mark.parametrize("min_gain", [0.0, 1e-3])
def test_admit_is_judging_and_observing_one_by_one(net, inputs, criteria, min_gain):
    coverage, plain = nc.Coverage(net, criteria), nc.Coverage(net, criteria)
    activations = coverage.run(inputs, predictions=False)[0]
    for each in (coverage, plain):
        each.update(activations=activations.take(slice(0, 2)))
    kept = coverage.snapshot()
    taken = coverage.admit(activations=activations.take(slice(2, 40)), min_gain=min_gain)
    expected = []
    for row in range(2, 40):
        proposal = plain.propose(activations=activations.take(slice(row, row + 1)))
        expected.append(any(float(gain) > min_gain for gain in proposal.gain.values()))
        if expected[-1]:
            proposal.commit()
    assert taken.tolist() == expected
    assert any(expected)
    assert coverage.values() == pytest.approx(plain.values(), rel=1e-12)
    coverage.restore(kept)
    assert coverage.inputs == 2


def test_recording_has_no_effect_on_a_cpu():
    batches = torch.randn(4, 6, 4).unbind()
    found = []
    for recorded in (False, True):
        torch.manual_seed(0)
        coverage = nc.Coverage(nn.Linear(4, 3), [nc.NLC(), nc.NC()], cuda_graph=recorded)
        coverage.assess(batches, progress=False)
        found.append(coverage.values())
    assert found[0] == found[1]


def test_details_are_given_by_criterion(inputs):
    coverage = nc.Coverage.of_layers({"a": 6}, [nc.NC(0.5), nc.LVC(groups=2)])
    coverage.calibrate(activations={"a": inputs})
    coverage.update(activations={"a": inputs[:30]})
    assert list(coverage.details()) == ["LVC(groups=2)"]
    assert coverage.results().details == coverage.details()


def test_states_are_one_per_criterion(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.update(inputs)
    assert len(coverage.states) == len(CRITERIA)
    assert all(int(state.counts.sum()) == len(inputs) for state in coverage.states)
