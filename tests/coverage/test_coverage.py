import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc
from neuralcov.core.errors import StaleProposalError

CRITERIA = [nc.NLC(), nc.NC(0.5), nc.TKNC(2)]


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)).eval()


@pytest.fixture
def inputs():
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(1))


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


def test_what_calibration_would_not_use_is_refused():
    coverage = nc.Coverage.of_layers({"a": 1}, [nc.DSC(0.1)])
    rows = {"a": np.array([[0.0], [1.0]])}
    with pytest.raises(nc.NeuralcovError, match="go with one mapping of activations"):
        coverage.calibrate(activations=[rows, rows], predictions=[0, 1])
    with pytest.raises(nc.NeuralcovError, match="held_out= goes with training data"):
        coverage.calibrate("some.ncal", held_out=rows)


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


def test_nan_inputs_are_reported_once(net, inputs):
    coverage = nc.Coverage(net, [nc.NC(0.5), nc.TKNC(1)])
    inputs[3] = torch.nan
    inputs[5, 0] = torch.inf
    coverage.update(inputs)
    with pytest.warns(nc.CoverageWarning, match="2 inputs with NaN or infinite outputs were left out"):
        coverage.values()
    assert [(f.criterion, f.inputs) for f in coverage.findings()] == [("NC(0.5)", 2), ("TKNC(1)", 2)]
    clean = nc.Coverage(net, [nc.NC(0.5), nc.TKNC(1)])
    clean.update(inputs[torch.isfinite(inputs).all(1)])
    assert coverage.values() == clean.values()


def test_nan_in_calibration_is_reported(tmp_path):
    rows = np.random.default_rng(0).standard_normal((30, 2)).astype(np.float32)
    rows[3, 1] = np.nan
    coverage = nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10), nc.LVC()])
    with pytest.warns(nc.CoverageWarning, match="calibration: 1 training inputs with NaN or infinite outputs"):
        coverage.calibrate(activations={"a": rows})
    coverage.save_calibration(tmp_path / "some.ncal")
    again = nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10), nc.LVC()])
    again.calibrate(tmp_path / "some.ncal")
    again.update(activations={"a": rows[:2]})
    sentences = [str(finding) for finding in again.findings()]
    assert "calibration: 1 training inputs with NaN or infinite outputs were left out" in sentences
    assert "LVC: calibrated on 29 inputs, fewer than" not in sentences
    with pytest.raises(nc.NeuralcovError, match="saw no input whose outputs are finite, among 30"):
        nc.Coverage.of_layers({"a": 2}, [nc.KMNC(10)]).calibrate(activations={"a": rows * np.nan})


def test_float64_counts_as_infinite_where_squares_of_it_are_beyond_float64():
    coverage = nc.Coverage.of_layers({"a": 1}, [nc.DSC(0.1)])
    coverage.calibrate(activations={"a": np.array([[0.0], [1.0]])}, predictions=[0, 1])
    found = coverage.scores(activations={"a": np.array([[1e200], [1e60], [0.5]])}, predictions=[0, 0, 0])["DSC(0.1)"]
    np.testing.assert_array_equal(found, [np.nan, 1e60, 0.5])


def test_pytorchs_default_precision_changes_nothing(request):
    rows = np.random.default_rng(0).standard_normal((20, 5)).astype(np.float32)
    activations, predictions = {"a": rows[:, :3], "b": rows[:, 3:]}, [0, 1] * 10
    criteria = [nc.DSC(0.1), nc.LSC(10), nc.MDSC(10), nc.CC(1), nc.SS(), nc.LVC(), nc.NLC(), nc.KMNC(10), nc.TKNP(1)]
    before = torch.get_default_dtype()
    request.addfinalizer(lambda: torch.set_default_dtype(before))
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        coverage = nc.Coverage.of_layers({"a": 3, "b": 2}, criteria)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate(activations=activations, predictions=predictions)
            coverage.update(activations=activations, predictions=predictions)
            found.append(coverage.values())
    assert found[0] == found[1]


def test_numbers_of_numpy_are_plain_numbers():
    criteria = [nc.TKNC(np.int64(3)), nc.NC(np.float32(0.5))]
    assert [criterion.name for criterion in criteria] == ["TKNC(3)", "NC(0.5)"]
    assert type(criteria[0].k) is int


def test_an_empty_batch(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    coverage.update(inputs[:0])
    assert coverage.values() == {"NLC": 0.0, "NC(0.5)": 0.0, "TKNC(2)": 0.0}
    assert {name: gain.shape for name, gain in coverage.gain(inputs[:0]).items()} == dict.fromkeys(
        coverage.values(), (0,)
    )


def test_zero_length_loaders(net):
    coverage = nc.Coverage(net, [nc.KMNC(10)])
    with pytest.raises(nc.NeuralcovError, match="calibration saw no input"):
        coverage.calibrate([])
    with pytest.raises(nc.NeuralcovError, match="gave no batch"):
        nc.Coverage(net, [nc.NC()]).assess(iter([]))


@pytest.mark.parametrize(
    ("criteria", "message"),
    [
        ([nc.NC(), nc.NC(0.75)], r"the criterion NC\(0.75\) is given 2 times"),
        ([], "no criteria"),
        ([nc.NC], "is not a criterion"),
        (["nlc"], "'nlc' is not a criterion"),
    ],
)
def test_wrong_criteria(net, criteria, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        nc.Coverage(net, criteria)


@pytest.mark.parametrize("criteria", [nc.NLC(), None, "nlc"])
def test_criteria_come_in_a_list(net, criteria):
    with pytest.raises(nc.NeuralcovError, match=r"expected a list, for example \[nc.NLC\(\)"):
        nc.Coverage(net, criteria)


@pytest.mark.parametrize("options", [{"predict": "argmax"}, {"steps": "a"}, {"batch_axis": "x"}])
def test_options_of_the_wrong_type(net, options):
    with pytest.raises(nc.NeuralcovError, match=f"{next(iter(options))}="):
        nc.Coverage(net, [nc.NC()], **options)


def test_wrong_batches(net, inputs):
    coverage = nc.Coverage(net, CRITERIA)
    with pytest.raises(nc.NeuralcovError, match="either inputs or activations"):
        coverage.update()
    with pytest.raises(nc.NeuralcovError, match="either inputs or activations"):
        coverage.update(inputs, activations={"0": inputs})
    with pytest.raises(nc.NeuralcovError, match="predictions= goes with activations="):
        coverage.update(inputs, predictions=[0] * 40)
    coverage.update(inputs)
    with pytest.raises(nc.NeuralcovError, match=r"the batch lacks layer '2'"):
        coverage.update(activations={"0": torch.zeros(1, 8)})
    with pytest.raises(nc.NeuralcovError, match=r"data of type Tensor: expected a loader"):
        coverage.assess(inputs)


def test_wrong_activations():
    coverage = nc.Coverage.of_layers({"a": 3, "b": 2}, CRITERIA)
    with pytest.raises(nc.NeuralcovError, match=r"layer 'a' has 4 neurons in the batch but 3"):
        coverage.update(activations={"a": torch.zeros(1, 4), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match=r"layer 'a' have type .* and shape \(3,\)"):
        coverage.update(activations={"a": torch.zeros(3), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match="layers of different batch sizes"):
        coverage.update(activations={"a": torch.zeros(2, 3), "b": torch.zeros(1, 2)})
    with pytest.raises(nc.NeuralcovError, match=r"labels of type torch.float32 .* expected 2 integers"):
        coverage.update(activations={"a": torch.zeros(2, 3), "b": torch.zeros(2, 2)}, labels=torch.zeros(2))
    with pytest.raises(nc.NeuralcovError, match="expected at least one layer"):
        coverage.update(activations={})
    with pytest.raises(nc.NeuralcovError, match="has no model to run inputs through"):
        coverage.update(torch.zeros(2, 3))
    with pytest.raises(nc.NeuralcovError, match="layer 'a' has 0 neurons"):
        nc.Coverage.of_layers({"a": 0}, CRITERIA)


def test_the_model_is_left_as_it_was(net, inputs):
    net.train()
    net[0].eval()
    before = copy.deepcopy(net.state_dict())
    coverage = nc.Coverage(net, [nc.KMNC(10), nc.NLC()])
    coverage.calibrate([inputs])
    with coverage.tap():
        coverage.update(inputs)
        coverage.gain(inputs)
        assert not net.training
    assert net.training
    assert not net[0].training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module._forward_hooks for module in net.modules())


def test_keep_mode(inputs):
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)).train()
    coverage = nc.Coverage(net, [nc.NLC()], mode="keep")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        coverage.update(inputs)
    evaluated = nc.Coverage(net, [nc.NLC()])
    evaluated.update(inputs)
    assert coverage.values() != evaluated.values()


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


def test_an_empty_batch_may_come_with_empty_lists():
    coverage = nc.Coverage.of_layers({"fc": 2}, [nc.LSC(10)])
    coverage.calibrate(activations={"fc": torch.randn(9, 2)}, predictions=[0] * 9)
    coverage.update(activations={"fc": torch.randn(0, 2)}, predictions=[])
    assert coverage.values() == {"LSC(10)": 0.0}


def test_values_keep_quiet_if_asked_to(net, inputs):
    coverage = nc.Coverage(net, [nc.NC(0.5)])
    with pytest.warns(nc.CoverageWarning, match="NaN"):
        coverage.assess([torch.cat([inputs[:3], torch.full((1, 6), torch.nan)])])
    coverage.reset()
    coverage.update(torch.cat([inputs[:3], torch.full((1, 6), torch.nan)]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = coverage.values(warn=False)
    with pytest.warns(nc.CoverageWarning, match="1 inputs with NaN"):
        assert coverage.values() == quiet


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
