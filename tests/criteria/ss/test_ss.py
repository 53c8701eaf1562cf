from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core import memory as sizes
from neuralcov.criteria.ss import signs, ss
from neuralcov.criteria.ss.admission import OrderedAdmission
from neuralcov.kernels import hashing as keys
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
def test_equal_again_in_any_split(seed, parts):
    tests = suite(seed, sum(parts), widths=NARROW)
    coverage = nc.Coverage.of_layers(NARROW, [nc.SS()])
    start = 0
    for size in parts:
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


def admitted_in_order(tests, seen, least):
    """Rows that show more than ``least`` pairs each when they come, by comparing all pairs over and over."""
    kept = list(range(seen))
    for row in range(seen, len(next(iter(tests.values())))):
        before, after = (
            len(brute_force({name: values[rows] for name, values in tests.items()})) for rows in (kept, [*kept, row])
        )
        if after - before > least:
            kept.append(row)
    return kept[seen:]


def flipped_a_little(rng, size, widths):
    """Rows that differ from a common one in a few signs, often in the same ones."""
    tests = {name: np.tile(rng.standard_normal(width), (size, 1)) for name, width in widths.items()}
    for values in tests.values():
        for row in values:
            row[rng.choice(len(row), rng.integers(0, min(4, len(row)) + 1), replace=False)] *= -1
    return {name: values.astype(np.float32) for name, values in tests.items()}


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(0, 14), st.sampled_from([0, 1, 3]))
@pytest.mark.parametrize(("block", "queue"), [(1 << 18, 1024), (40, 5)])
def test_admitting_is_comparing_all_pairs_again_for_each_input(block, queue, seed, seen, offered, least):
    rng = np.random.default_rng(seed)
    tests = flipped_a_little(rng, seen + offered, {"a": 4, "b": 3, "c": 70})
    coverage = covered(nc.SS(), {name: values[:seen] for name, values in tests.items()})
    with pytest.MonkeyPatch.context() as patch:
        # In small blocks the matches of one neuron are cut apart.
        patch.setitem(sizes.BLOCK_ELEMENTS, "cpu", block)
        patch.setattr(ss, "QUEUE", queue)
        offers = {name: values[seen:] for name, values in tests.items()}
        taken = coverage.admit(activations=offers, min_gain=least / (12 + 210))
    kept = admitted_in_order(tests, seen, least)
    assert (taken.nonzero()[:, 0] + seen).tolist() == kept
    rows = [*range(seen), *kept]
    shown = brute_force({name: values[rows] for name, values in tests.items()})
    assert coverage.inputs == len(rows)
    assert coverage.values()["SS"] == len(shown) / (12 + 210)


def test_admitting_takes_few_rounds():
    """Each round settles nearly all inputs; one by one, 300 inputs would be judged 300 times."""
    tests = flipped_a_little(np.random.default_rng(1), 400, {"a": 12, "b": 300})
    coverage = covered(nc.SS(), {name: values[:100] for name, values in tests.items()})
    rounds = []
    with pytest.MonkeyPatch.context() as patch:
        judge = OrderedAdmission.newly_shown
        patch.setattr(OrderedAdmission, "newly_shown", lambda queue, taken: rounds.append(1) or judge(queue, taken))
        taken = coverage.admit(activations={name: values[100:] for name, values in tests.items()})
    assert 10 < taken.sum() < 290
    assert 2 <= len(rounds) <= 12


def test_admitting_onto_nothing():
    """The input without a positive sign has the key 0, and finds no group of its own where there are none."""
    layers = {"a": torch.tensor([[-1.0], [1.0], [1.0]]), "b": torch.tensor([[1.0], [1.0], [-1.0]])}
    coverage = nc.Coverage.of_layers({"a": 1, "b": 1}, [nc.SS()])
    # Without another to compare it with, no input shows anything, and none is taken.
    assert coverage.admit(activations=layers).tolist() == [False, False, False]
    coverage.update(activations={name: values[:1] for name, values in layers.items()})
    assert coverage.admit(activations=layers).tolist() == [False, False, True]
    assert coverage.values()["SS"] == 1


@pytest.fixture
def colliding_words(monkeypatch):
    """The first two neurons of a layer share their first word."""
    plain = keys.neuron_words

    def words(layer, width, device):
        found = plain(layer, width, device).clone()
        found[1, 0] = found[0, 0]
        return found

    monkeypatch.setattr(keys, "neuron_words", words)
    monkeypatch.setattr(signs, "neuron_words", words)
    keys.word_pieces.cache_clear()
    yield
    keys.word_pieces.cache_clear()


@pytest.mark.usefixtures("colliding_words")
@pytest.mark.parametrize("seen", [1, 2])
def test_what_looks_like_a_neighbour_by_its_first_word_is_none(seen):
    """The second input is the first with neuron 0 flipped, and looks like it with neuron 1 flipped."""
    tests = {
        "a": torch.tensor([[-1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]]),
        "b": torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]),
    }
    coverage = nc.Coverage.of_layers({"a": 2, "b": 2}, [nc.SS()])
    coverage.update(activations={name: values[:seen] for name, values in tests.items()})
    offered = {name: values[seen:] for name, values in tests.items()}
    assert coverage.gain(activations=offered)["SS"].tolist() == [0.5, 0.0][seen - 1 :]
    assert coverage.admit(activations=offered).tolist() == [True, False][seen - 1 :]
    assert coverage.values()["SS"] == 0.5


def test_state_is_bit_packed():
    tests = suite(1, 100, widths={"a": 256, "b": 256})
    state = covered(nc.SS(), tests).states[0]
    pairs = state.pairs[0]
    assert pairs.every.numel() * 64 == 100 * 256
    assert pairs.shown.numel() * 64 == 256 * 256
