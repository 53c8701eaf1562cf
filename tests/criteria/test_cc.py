import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from tests.support import FLAVOURS, covered, layer_values, suite, value_of


def brute_force(values, distance, squared=False):
    """Centres of one layer by the plain loop, in float64."""
    centres = []
    for row in values.astype(np.float64):
        squares = [((row - centre) ** 2).sum() for centre in centres]
        distances = squares if squared else np.sqrt(squares)
        if all(d > distance for d in distances):
            centres.append(row)
    return centres


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("distance", [0, 0.5, 2, 4, 1e6])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (60, 7), (60, 60)])
def test_equals_brute_force(flavour, distance, squared, size, batch):
    tests = suite(3, size, flavour)
    expected = {name: len(brute_force(values, distance, squared)) for name, values in tests.items()}
    criterion = nc.CC(distance, squared=squared)
    assert value_of(criterion, tests, batch=batch) == sum(expected.values())
    assert layer_values(criterion, tests) == expected


@given(st.integers(0, 2**31), st.integers(1, 5))
def test_ties_on_a_grid_are_exact(seed, limit):
    """Whole numbers, whose distances often equal the limit."""
    points = np.random.default_rng(seed).integers(-4, 5, (40, 2)).astype(np.float32)
    assert value_of(nc.CC(limit), {"a": points}) == len(brute_force(points, limit))


def test_ties_of_rounded_numbers_are_exact():
    """The limit is the very distance of two inputs, as float64 computes it."""
    points = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    distance = float(np.sqrt(((points[0].astype(np.float64) - points[1].astype(np.float64)) ** 2).sum()))
    assert value_of(nc.CC(distance), {"a": points}) == 1
    assert value_of(nc.CC(np.nextafter(distance, 0).item()), {"a": points}) == 2


def test_a_long_chain_of_dependent_decisions():
    """Each input is reached by the one before it alone: every second one opens a cluster."""
    points = np.arange(500, dtype=np.float32)[:, None]
    assert value_of(nc.CC(1), {"a": points}) == 250
    assert value_of(nc.CC(1), {"a": points}, batch=13) == 250


def test_more_inputs_than_a_step_takes():
    points = suite(1, 2500, widths={"a": 3})
    assert value_of(nc.CC(1), points) == len(brute_force(points["a"], 1))


def test_merging_offers_the_others_centres_in_order():
    a, b = suite(1, 30), suite(2, 30)
    first, second = covered(nc.CC(2), a), covered(nc.CC(2), b)
    expected = sum(len(brute_force(np.concatenate([brute_force(a[n], 2), brute_force(b[n], 2)]), 2)) for n in a)
    first.merge(second)
    with pytest.warns(nc.CoverageWarning, match="merged"):
        assert first.values()["CC(2)"] == expected


def test_a_float32_batch_does_not_round_older_float64_centres():
    coverage = nc.Coverage.of_layers({"a": 1}, [nc.CC(1e-9)])
    for value in (np.array([[0.1]]), np.array([[5.0]], np.float32), np.array([[0.1]])):
        coverage.update(activations={"a": value})
    assert coverage.values() == {"CC(1e-09)": 2.0}


def test_wide_layers_with_a_large_common_part():
    rng = np.random.default_rng(2)
    points = (1000 + rng.standard_normal((50, 2000))).astype(np.float32)
    distance = float(np.median([np.linalg.norm(points[0] - p) for p in points[1:]]))
    assert value_of(nc.CC(distance), {"a": points}) == len(brute_force(points, distance))


@pytest.mark.parametrize("arguments", [{"distance": -1}, {"distance": float("inf")}, {"squared": 1}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=next(iter(arguments))):
        nc.CC(**arguments)
