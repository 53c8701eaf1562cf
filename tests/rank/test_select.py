"""Selections: in the order of the queue, no two of the same kinds, and no more than the budget."""

import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import InputError


def kinds_of(coverage, inputs):
    """Return the kinds of each input in every layer, as one tuple."""
    counter = next(criterion for criterion in coverage.criteria if isinstance(criterion, nc.LCC))
    batch, _ = coverage.run(inputs)
    return [tuple(row) for row in counter.kinds(batch).flatten(1).tolist()]


def test_near_duplicates_are_passed_over(inputs, taught):
    pool = torch.cat([inputs[120:], inputs[120:] + 1e-7])
    kinds = kinds_of(taught, pool)
    expected, seen = [], set()
    for position in nc.rank(taught, [pool]).positions:
        if kinds[position] not in seen:
            seen.add(kinds[position])
            expected.append(position)
    chosen = nc.select(taught, pool.split(32), budget=20)
    assert chosen.positions == expected[:20]
    assert [row.rank for row in chosen] == list(range(1, 21))
    everything = nc.select(taught, [pool], budget=500)
    assert everything.positions == expected
    assert f"{len(expected)} of 160 inputs differ in kind, fewer than the budget of 500" in everything.notes
    assert f"{160 - len(expected)} near duplicates" in " ".join(everything.notes)


def test_settings_of_ones_own_count(network, inputs):
    fine = nc.Coverage(network, [nc.DSC(), nc.LCC(resolution=50.0)])
    fine.calibrate([inputs[:120]])
    coarse = nc.Coverage(network, [nc.DSC(), nc.LCC(resolution=0.05)])
    coarse.calibrate([inputs[:120]])
    assert len(nc.select(coarse, [inputs[120:]], 80)) < len(nc.select(fine, [inputs[120:]], 80))


def test_broken_inputs_are_like_nothing_but_themselves(inputs, taught):
    pool = inputs[120:].clone()
    pool[3], pool[4] = torch.nan, torch.inf
    assert nc.select(taught, [pool], 2).positions == [3, 4]


@pytest.mark.parametrize("budget", [0, -1, True, 2.5])
def test_budgets_that_are_none(inputs, taught, budget):
    with pytest.raises(InputError, match="expected a whole number of at least 1"):
        nc.select(taught, [inputs], budget)
