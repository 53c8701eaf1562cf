"""Continuous perturbations: every region has one colour per channel, and the same key gives the same change."""

import numpy as np
import pytest
import torch

from neuralcov.fuzz.mutations.mutation import MutationDraw
from neuralcov_lab.experiments.searching.stripes import STRENGTHS, ContinuousPerturbation

COUNT, SIDE = 64, 32


@pytest.fixture(scope="module")
def chances():
    return np.random.default_rng(0).random(COUNT)


def changes(shape, chances):
    mutation = ContinuousPerturbation(shape)
    draw = MutationDraw.of_batch(mutation.choose(chances))
    grey = torch.full((COUNT, 3, SIDE, SIDE), 0.5)
    return mutation.apply(grey, draw) - grey


@pytest.mark.parametrize("shape", ["bands", "square"])
def test_strengths_are_those_listed_and_every_input_has_one(shape, chances):
    found = changes(shape, chances)
    assert torch.equal(found, changes(shape, chances))
    seen = set()
    for change in found:
        sizes = {round(float(size), 4) for size in change.abs().unique()} - {0.0}
        assert len(sizes) == 1
        seen |= sizes
    assert seen == set(STRENGTHS)


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
    mutation = ContinuousPerturbation("bands")
    draw = MutationDraw.of_batch(mutation.choose(np.array([0.2, 0.7])))
    white = mutation.apply(torch.ones(2, 1, 8, 8), draw)
    assert 0.89 < float(white.min()) < float(white.max()) == 1
    assert mutation.identity() == {"name": "bands", "geometric": False, "strengths": list(STRENGTHS)}
