from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from tests.support import FLAVOURS, covered, layer_values, suite, value_of

NARROW = {"a": 3, "b": 4, "c": 1, "d": 2}


def brute_force(tests):
    """All pairs of inputs compared, straight from the definition: the set of shown (layer, i, j)."""
    shown = set()
    size = len(next(iter(tests.values())))
    for k, (first, second) in enumerate(pairwise(tests.values())):
        here, there = first > 0, second > 0
        for x, y in combinations(range(size), 2):
            changed = np.flatnonzero(here[x] != here[y])
            if len(changed) == 1:
                shown.update((k, changed[0], j) for j in np.flatnonzero(there[x] != there[y]))
    return shown


def total(widths):
    return sum(a * b for a, b in pairwise(widths.values()))


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("size", "batch"), [(1, 1), (2, 1), (40, 1), (40, 7), (40, 40)])
def test_equals_all_pairs(flavour, size, batch):
    tests = suite(3, size, flavour, NARROW)
    shown = brute_force(tests)
    assert value_of(nc.SS(), tests, batch=batch) == len(shown) / total(NARROW)
    widths = list(NARROW.values())
    by_layer = layer_values(nc.SS(), tests)
    for k, name in enumerate(list(NARROW)[:-1]):
        assert by_layer[name] == sum(layer == k for layer, _, _ in shown) / (widths[k] * widths[k + 1])
    assert by_layer["d"] is None


@given(st.integers(0, 2**31), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_equal_again_in_any_split(seed, sizes):
    tests = suite(seed, sum(sizes), widths=NARROW)
    coverage = nc.Coverage.of_layers(NARROW, [nc.SS()])
    start = 0
    for size in sizes:
        coverage.update(activations={name: values[start : start + size] for name, values in tests.items()})
        start += size
    assert coverage.values()["SS"] == len(brute_force(tests)) / total(NARROW)


def test_layers_wider_than_a_word():
    """Rows that differ from a common one in a few signs, so that neighbours exist in wide layers too."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal(150)
    rows = np.tile(base, (60, 1))
    for row in rows:
        flipped = rng.choice(10, rng.integers(0, 3), replace=False)
        row[flipped] *= -1
    tests = {"a": rows.astype(np.float32), "b": rng.standard_normal((60, 130)).astype(np.float32)}
    shown = brute_force(tests)
    assert len(shown) > 100
    assert value_of(nc.SS(), tests, batch=11) == len(shown) / (150 * 130)


def test_merging_finds_neighbours_across_suites():
    widths = {"a": 5, "b": 6}
    a, b = suite(1, 12, widths=widths), suite(2, 12, widths=widths)
    first, second = covered(nc.SS(), a), covered(nc.SS(), b)
    both = {name: np.concatenate([a[name], b[name]]) for name in a}
    assert len(brute_force(both)) > max(len(brute_force(a)), len(brute_force(b)))
    first.merge(second)
    assert first.values()["SS"] == len(brute_force(both)) / total(widths)


def test_one_layer_alone():
    assert value_of(nc.SS(), suite(1, 10, widths={"a": 3})) == 0
    assert covered(nc.SS(), suite(1, 10, widths={"a": 3})).gain(activations=suite(2, 3, widths={"a": 3}))[
        "SS"
    ].tolist() == [0, 0, 0]


def test_zero_is_not_positive():
    tests = {"a": np.array([[0.0], [1.0]], np.float32), "b": np.array([[0.0], [1.0]], np.float32)}
    assert value_of(nc.SS(), tests) == 1
    tests["a"][0] = -1
    assert value_of(nc.SS(), tests) == 1


def test_inputs_that_lack_a_layer_show_nothing_with_it():
    layers = {"a": torch.tensor([[1.0], [-1.0]]), "b": torch.tensor([[1.0], [-1.0]])}
    there = nc.Activations(layers, present={"b": torch.tensor([True, False])})
    coverage = nc.Coverage.of_layers({"a": 1, "b": 1}, [nc.SS()])
    coverage.update(activations=there)
    assert coverage.values()["SS"] == 0
    coverage.update(activations=nc.Activations(layers))
    assert coverage.values()["SS"] == 1


def test_state_is_bit_packed():
    tests = suite(1, 100, widths={"a": 256, "b": 256})
    state = covered(nc.SS(), tests)._ledger.states[0]
    pairs = state.pairs[0]
    assert pairs.every.numel() * 64 == 100 * 256
    assert pairs.shown.numel() * 64 == 256 * 256
