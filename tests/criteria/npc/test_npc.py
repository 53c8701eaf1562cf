import pytest
import torch

import neuralcov as nc
from tests.criteria.npc.npc_support import BruteForce, explained, measured, unused

SETTINGS = [
    {},
    {"alpha": 0.5, "beta": 0.5, "clusters": 2, "buckets": 7},
    {"alpha": 1.0, "beta": 1.0, "clusters": 1, "buckets": 1},
    {"alpha": 0.9, "beta": 0.2, "clusters": 3, "buckets": 10},
]


@pytest.mark.parametrize("flavour", ["smooth", "ties", "rectified", "scaled", "constant"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("mode", ["structure", "activation"])
def test_equals_brute_force(flavour, setting, mode):
    training, tests = explained(1, 60, flavour), explained(2, 41, flavour, spread=1.2)
    full = {"alpha": 0.7, "beta": 0.7, "clusters": 4, "buckets": 100, **setting}
    expected = BruteForce(training, **full, mode=mode)
    expected.observe(tests.take(slice(0, 30)))
    coverage = measured(nc.NPC(**setting, mode=mode), training, tests.take(slice(0, 30)), batch=7)
    assert unused(coverage) == pytest.approx(expected.value, rel=1e-12)
    assert expected.value > 0 or setting.get("beta") == 1.0
    gains = coverage.gain(activations=tests)[coverage.criteria[0].name].tolist()
    fresh = [len((expected.cells(tests, i) or set()) - expected.covered) for i in range(tests.size)]
    assert gains == pytest.approx([n / expected.all_cells for n in fresh], rel=1e-12)
    for row in coverage.by_layer():
        value = row.values[coverage.criteria[0].name]
        if mode == "structure":
            assert value is None
        else:
            cells = len([cell for cell in expected.covered if cell[2] == row.layer])
            assert value == pytest.approx(cells * len(expected.names) / expected.all_cells, rel=1e-12)


@pytest.mark.parametrize("mode", ["structure", "activation"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_training_inputs(mode, size):
    """Fewer paths than clusters; in activation mode clusters of one input, with none to be compared with."""
    training, tests = explained(3, size, right=1.0), explained(4, 20)
    expected = BruteForce(training, 0.7, 0.7, 4, 10, mode)
    expected.observe(tests)
    coverage = measured(nc.NPC(buckets=10, mode=mode), training, tests)
    assert unused(coverage) == pytest.approx(expected.value, rel=1e-12)
    counts = coverage.states[0].counts.tolist()
    outside = sum(int(c) not in expected.abstract for c in tests.predictions)
    assert counts == [20 - outside, 0, outside]


def test_one_neuron_and_one_layer():
    training = explained(5, 30, widths={"a": 1})
    tests = explained(6, 20, widths={"a": 1})
    for mode in ("structure", "activation"):
        expected = BruteForce(training, 0.7, 0.7, 2, 5, mode)
        expected.observe(tests)
        assert unused(measured(nc.NPC(clusters=2, buckets=5, mode=mode), training, tests)) == expected.value


def test_an_upper_of_ones_own():
    training, tests = explained(1, 60), explained(2, 40)
    expected = BruteForce(training, 0.7, 0.7, 4, 100, "activation", upper=1.3)
    expected.observe(tests)
    found = unused(measured(nc.NPC(mode="activation", upper=1.3), training, tests))
    assert found == pytest.approx(expected.value, rel=1e-12)
    assert found != unused(measured(nc.NPC(mode="activation"), training, tests))


def test_training_inputs_fall_into_the_first_bucket():
    """Each lies at distance 0 from itself, if the path it is most like is that of its own cluster."""
    training = explained(1, 60, right=1.0)
    coverage = measured(nc.NPC(clusters=1, buckets=10, mode="activation"), training, training)
    assert unused(coverage) == pytest.approx(1 / 10)


def test_classes_without_a_path_are_left_out_and_counted():
    training, tests = explained(1, 30), explained(2, 20)
    tests.predictions[:4] = torch.tensor([-1, 3, 99, 3])
    coverage = measured(nc.NPC(), training, tests)
    with pytest.warns(nc.CoverageWarning, match="4 inputs were left out: their classes did not occur"):
        value = coverage.values()["NPC(0.7)"]
    assert value == unused(measured(nc.NPC(), training, tests.take(slice(4, 20))))
    assert not coverage.gain(activations=tests)["NPC(0.7)"][:4].any()
    only = measured(nc.NPC(), training, tests.take(slice(0, 4)))
    with pytest.raises(nc.NeuralcovError, match="could place none of 4 inputs"):
        only.values()


def test_a_class_never_classified_correctly_counts_in_the_divisor():
    training, tests = explained(1, 60), explained(2, 30)
    never = training.labels == 2
    training.predictions[never] = 0
    found = unused(measured(nc.NPC(buckets=10), training, tests))
    expected = BruteForce(training, 0.7, 0.7, 4, 10)
    expected.observe(tests)
    assert (expected.all_cells, sorted(expected.abstract)) == (3 * 4 * 10, [0, 1])
    assert found == pytest.approx(expected.value, rel=1e-12)


def test_relevance_that_is_not_finite_leaves_the_input_out():
    training, tests = explained(1, 30), explained(2, 20)
    tests.relevance["c"][7, 2] = torch.nan
    coverage = measured(nc.NPC(), training, tests)
    with pytest.warns(nc.CoverageWarning, match="1 input with NaN or infinite outputs"):
        value = coverage.values()["NPC(0.7)"]
    kept = torch.tensor([i for i in range(20) if i != 7])
    assert value == unused(measured(nc.NPC(), training, tests.take(kept)))
