"""Continuous perturbations: every region has one colour per channel, and the same key gives the same change."""

import numpy as np
import pytest
import torch

from neuralcov.fuzz.mutations.mutation import MutationDraw
from neuralcov_lab.experiments.searching.stripes import (
    SHAPES,
    STRENGTHS,
    ContinuousPerturbation,
    continuous_perturbations,
)

COUNT, SIDE = 64, 32


@pytest.fixture(scope="module")
def chances():
    return np.random.default_rng(0).random(COUNT)


def changes(shape, chances, strength=0.06):
    mutation = ContinuousPerturbation(shape, strength)
    draw = MutationDraw.of_batch(mutation.choose(chances))
    grey = torch.full((COUNT, 3, SIDE, SIDE), 0.5)
    return mutation.apply(grey, draw) - grey


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_strength_is_that_of_the_mutation_and_the_key_tells_all_else(shape, strength, chances):
    found = changes(shape, chances, strength)
    assert torch.equal(found, changes(shape, chances, strength))
    sizes = found.abs().unique().tolist()
    assert all(min(abs(size - known) for known in (0, strength)) < 1e-6 for size in sizes)
    assert len(found.flatten(1).unique(dim=0)) == COUNT


def test_bands_run_along_rows_or_columns_and_cover_the_picture(chances):
    found = changes("bands", chances)
    assert (found != 0).all()
    upright = (found == found[:, :, :1]).flatten(1).all(1)
    level = (found == found[:, :, :, :1]).flatten(1).all(1)
    assert bool((upright | level).all())
    assert 10 < int(upright.sum()) < COUNT - 10
    for change in found[upright]:
        line = change[0, 0]
        starts = [0, *(int(place) + 1 for place in torch.nonzero(line[1:] != line[:-1])[:, 0])]
        assert any(all(start % width == 0 for start in starts) for width in range(1, 9))


def test_a_square_is_one_region_of_up_to_half_the_side(chances):
    for change in changes("square", chances):
        inside = (change != 0).all(0)
        assert torch.equal(inside, (change != 0).any(0))
        rows, columns = (torch.nonzero(inside.any(axis))[:, 0] for axis in (1, 0))
        height, width = (int(places[-1] - places[0]) + 1 for places in (rows, columns))
        assert 3 < height == width <= SIDE // 2 + 1
        assert int(inside.sum()) == height * width
        assert all(len(channel[inside].unique()) == 1 for channel in change)


def test_pixels_stay_in_range():
    mutation = ContinuousPerturbation("bands", 0.1)
    draw = MutationDraw.of_batch(mutation.choose(np.array([0.2, 0.7])))
    white = mutation.apply(torch.ones(2, 1, 8, 8), draw)
    assert 0.89 < float(white.min()) < float(white.max()) == 1


def test_every_mutation_has_a_name_of_its_own():
    found = continuous_perturbations()
    assert len({mutation.name for mutation in found}) == len(found) == len(SHAPES) * len(STRENGTHS)
    assert found[0].identity() == {"name": "bands of 0.03", "geometric": False, "shape": "bands", "strength": 0.03}
