"""Minimised suites: they keep what they say, as plain greedy search would choose them, within their bounds."""

import copy
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.criterion import SUBMODULAR
from neuralcov.core.errors import CalibrationError, HyperParameterError, InputError, MemoryBudgetError

SUBMODULAR_ONES = [
    nc.NC(0.5), nc.KMNC(5), nc.NBC(), nc.SNAC(), nc.TKNC(1), nc.TKNP(2), nc.LSC(1), nc.DSC(0.1), nc.MDSC(0.2), nc.NPC(),
    nc.LCC(over="mean"),
]  # fmt: skip


def covering(network, criteria, training):
    coverage = nc.Coverage(network, criteria)
    if any(criterion.learns for criterion in criteria):
        coverage.calibrate([(training, network(training).argmax(1))])
    return coverage


@pytest.fixture(scope="module")
def net(network):
    return copy.deepcopy(network).float()


@pytest.fixture(scope="module")
def pool(inputs):
    return inputs[100:].float()


def values_of(coverage, inputs):
    twin = coverage.fork()
    twin.reset()
    if len(inputs):
        twin.update(inputs)
    return twin.values(warn=False)


@pytest.mark.parametrize("criterion", SUBMODULAR_ONES, ids=lambda criterion: criterion.name)
@pytest.mark.parametrize("keep", [0.6, 0.95, 1.0])
def test_it_keeps_what_it_says(net, inputs, pool, criterion, keep):
    coverage = covering(net, [criterion], inputs[:90].float())
    few = nc.minimise(coverage, pool.split(16), keep)
    name = criterion.name
    whole = values_of(coverage, pool)[name]
    assert few.whole[name] == pytest.approx(whole)
    kept = values_of(coverage, pool[few.positions])[name]
    assert kept == pytest.approx(few.kept[name])
    assert kept >= keep * whole * (1 - 1e-12)
    assert len(set(few.positions)) == len(few)
    assert 0 < few.at_least <= len(few)
    assert 1 <= few.factor <= len(few) / few.at_least
    assert coverage.inputs == 0


def test_it_is_plain_greedy_search(net, inputs, pool):
    coverage = covering(net, [nc.KMNC(5), nc.LCC(over="mean")], inputs[:90].float())
    few = nc.minimise(coverage, pool.split(16), 0.9)
    whole = values_of(coverage, pool)
    twin, taken = coverage.fork(), []
    while any(twin.values(warn=False)[name] < 0.9 * whole[name] for name in whole):
        now, gains = twin.values(warn=False), twin.gain(pool)
        worth = sum(
            torch.minimum(gains[name], torch.tensor(max(0.0, 0.9 * whole[name] - now[name]))) / whole[name]
            for name in whole
        )
        # Sums that differ by rounding alone count as one: the first of them.
        best = int((worth >= worth.max() - 1e-12).nonzero()[0])
        taken.append(best)
        twin.update(pool[best : best + 1])
    assert few.positions == taken
    assert few[-1].score == pytest.approx(1)
    assert [row.score for row in few] == sorted(row.score for row in few)


@settings(max_examples=10, deadline=None)
@given(rows=st.lists(st.integers(0, 99), min_size=4, max_size=9, unique=True), keep=st.sampled_from([0.5, 0.8, 1.0]))
def test_bounds_hold_for_the_fewest(net, pool, rows, keep):
    coverage = nc.Coverage(net, [nc.TKNC(1)])
    some = pool[rows]
    few = nc.minimise(coverage, [some], keep)
    whole = values_of(coverage, some)["TKNC(1)"]
    fewest = next(
        size
        for size in range(1, len(rows) + 1)
        for chosen in combinations(range(len(rows)), size)
        if values_of(coverage, some[list(chosen)])["TKNC(1)"] >= keep * whole
    )
    assert few.at_least <= fewest <= len(few) <= few.factor * fewest + 1e-9


@pytest.mark.parametrize("criterion", [nc.NLC(), nc.LVC(), nc.CC(), nc.SS(), nc.LCC()], ids=lambda c: c.name)
def test_what_is_not_submodular_is_refused(net, pool, criterion):
    with pytest.raises(HyperParameterError, match="is not submodular: an input may add more to it after others"):
        nc.minimise(nc.Coverage(net, [criterion]), [pool])
    assert SUBMODULAR not in criterion.promises


def test_lcc_says_which_form_will_do(net, pool):
    with pytest.raises(HyperParameterError, match=r"take LCC\(over='mean'\)"):
        nc.minimise(nc.Coverage(net, [nc.LCC()]), [pool])


def test_other_errors_are_one_sentence(net, pool):
    with pytest.raises(CalibrationError, match="needs calibration"):
        nc.minimise(nc.Coverage(net, [nc.KMNC()]), [pool])
    with pytest.raises(MemoryBudgetError, match=r"more than memory=1(\.0)? ?KiB|more than memory="):
        nc.minimise(nc.Coverage(net, [nc.NC()]), [pool], memory=1024)
    with pytest.raises(InputError, match="nothing to rank"):
        nc.minimise(nc.Coverage(net, [nc.NC()]), [])
    for keep in (0, 1.5, True):
        with pytest.raises(InputError, match="expected a share above 0 and at most 1"):
            nc.minimise(nc.Coverage(net, [nc.NC()]), [pool], keep)


def test_a_suite_that_covers_nothing_needs_no_input(net, pool):
    few = nc.minimise(nc.Coverage(net, [nc.NC(0.5)]), [torch.full((5, 6), torch.nan)])
    assert (len(few), few.kept, few.at_least) == (0, {"NC(0.5)": 0.0}, 0)
