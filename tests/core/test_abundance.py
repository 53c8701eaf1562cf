"""Abundance statistics against enumeration of all draws, and against what a known distribution still holds."""

from itertools import combinations
from statistics import fmean, pstdev

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from neuralcov.core.abundance import (
    chance_of_new,
    discounted,
    expected_share,
    kinds_of_more,
    kinds_to_come,
    rarefied,
    rarity,
    share_interval,
)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_rarefied_is_the_mean_and_deviation_over_all_draws(counts, data):
    weights = data.draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.5]), min_size=len(counts), max_size=len(counts)))
    shown = [kind for kind, count in enumerate(counts) for _ in range(count)]
    size = data.draw(st.integers(1, len(shown)))
    drawn = [sum(weights[kind] for kind in set(draw)) for draw in combinations(shown, size)]
    found = rarefied(torch.tensor(counts), torch.tensor(weights, dtype=torch.float64), size)
    assert found.value == pytest.approx(fmean(drawn), rel=1e-9, abs=1e-12)
    # The root of a variance that rounding leaves at 1e-13 is 3e-7.
    assert found.error == pytest.approx(pstdev(drawn), rel=1e-5, abs=2e-6)


def test_rarefying_a_million_inputs_takes_no_pairs_of_kinds():
    counts = torch.from_numpy(np.random.default_rng(0).zipf(1.5, 200_000).clip(max=1000))
    half = rarefied(counts, None, int(counts.sum()) // 2)
    assert len(counts) / 2 < half.value < len(counts)
    assert 0 < half.error < 1000
    assert rarefied(counts, None, int(counts.sum())).value == pytest.approx(len(counts), rel=1e-12)


@pytest.mark.parametrize("size", [50, 300, 2000])
def test_the_chance_of_something_new_is_what_is_left_of_a_known_distribution(size):
    random, shares = np.random.default_rng(size), 1 / np.arange(1, 2001)
    shares /= shares.sum()
    told, true = [], []
    for _ in range(200):
        counts = np.bincount(random.choice(2000, size, p=shares), minlength=2000)
        told.append(chance_of_new(torch.from_numpy(counts[counts > 0])))
        true.append(shares[counts == 0].sum())
    # Good and Turing's estimate is too high by E[f1 mass]/n, less than 1/n.
    assert fmean(told) == pytest.approx(fmean(true), abs=1 / size + 3 * pstdev(told) / 200**0.5)


def test_what_is_to_come_is_estimated_from_below_and_within_its_errors():
    random, shares = np.random.default_rng(3), np.full(1000, 1 / 1000)
    inside = 0
    for _ in range(100):
        counts = np.bincount(random.choice(1000, 1500, p=shares), minlength=1000)
        found = kinds_to_come((counts == 1).sum(), (counts == 2).sum())
        inside += abs(found.value - (counts == 0).sum()) <= 2 * found.error
    # Where all kinds are equally likely the bound is reached.
    assert inside >= 85


def test_by_hand():
    assert kinds_to_come(0, 1) == kinds_to_come(0, 0)
    found = kinds_to_come(4, 2)
    assert found.value == pytest.approx(4 * 3 / (2 * 3))
    assert found.error**2 == pytest.approx(2 + 4 * 7**2 / (4 * 9) + 16 * 2 * 9 / (4 * 81))
    assert chance_of_new(torch.tensor([], dtype=torch.int64)) == 1.0


@given(st.integers(1, 2000), st.data())
def test_intervals_are_those_of_scipy(whole, data):
    part = data.draw(st.integers(0, whole))
    low, high = stats.binomtest(part, whole).proportion_ci(method="wilson")
    assert share_interval(part, whole) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_what_is_likely_adds_up_to_the_known_mass(counts):
    probability = discounted(torch.tensor(counts), torch.ones(len(counts), dtype=torch.int64))
    known = 1 - counts.count(1) / sum(counts)
    all_once = set(counts) == {1}
    assert float(probability.sum()) == pytest.approx(0 if all_once else known, abs=1e-12)
    assert bool((probability >= 0).all())
    # Given by how many kinds have a count, it is the same.
    levels, kinds = torch.unique(torch.tensor(counts), return_counts=True)
    by_level = discounted(levels, kinds)
    assert torch.allclose(by_level[torch.searchsorted(levels, torch.tensor(counts))], probability)


@pytest.mark.parametrize("inputs", [0, 1, 7, 100])
def test_what_is_expected_is_what_draws_show(inputs):
    """A made-up abundance: the share of the weight that independent draws show on average."""
    probability = torch.tensor([0.5, 0.2, 0.1, 0.1, 0.05], dtype=torch.float64)
    weights = rarity(torch.tensor([10, 4, 2, 2, 1]))
    generator = np.random.default_rng(0)
    draws = generator.choice(6, size=(20_000, inputs), p=[*probability.tolist(), 0.05])
    shown = np.stack([(draws == kind).any(1) for kind in range(5)], axis=1) @ weights.numpy() / float(weights.sum())
    found = float(expected_share(probability, weights, torch.tensor(float(inputs))))
    assert found == pytest.approx(shown.mean(), abs=5 * shown.std() / 20_000**0.5 + 1e-12)


def test_a_certain_kind_is_expected_to_be_shown():
    one = torch.ones(1, dtype=torch.float64)
    assert float(expected_share(one, one, torch.tensor(3.0))) == 1
    assert float(expected_share(one, one, torch.tensor(0.0))) == 0


def test_more_inputs_show_as_many_new_kinds_as_foretold():
    random, shares = np.random.default_rng(5), 1 / np.arange(1, 3001)
    shares /= shares.sum()
    foretold, shown = [], []
    for _ in range(200):
        drawn = random.choice(3000, 1000, p=shares)
        first, counts = drawn[:500], np.bincount(drawn[:500], minlength=3000)
        foretold.append(kinds_of_more((counts == 1).sum(), (counts == 2).sum(), 500, 500))
        shown.append(len(set(drawn.tolist()) - set(first.tolist())))
    assert fmean(foretold) == pytest.approx(fmean(shown), rel=0.05)
