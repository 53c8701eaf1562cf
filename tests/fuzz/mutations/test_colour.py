"""Contrast and brightness against PIL, one picture and one value at a time."""

import numpy as np
import torch
from PIL import Image

from neuralcov.fuzz import Brightness, Contrast
from neuralcov.fuzz.mutations import MutationDraw


def by_pil(image, function):
    """One (channels, height, width) byte image with a function applied to every value, rounded and cut off."""
    table = [min(255, max(0, round(function(value)))) for value in range(256)]
    colours = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
    return np.asarray(colours.point(table * 3)).transpose(2, 0, 1)


def test_against_pil():
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 9, 11), dtype=np.uint8)
    factors, offsets = [0.8, 1.2, 1.4, 1.6, 1.8, 2.0], [-40, 10, 30, 50, 70, 255]
    pixels = torch.from_numpy(images).float() / 255
    draw = MutationDraw.of_batch(np.arange(6))
    for mutation, functions in (
        (Contrast(factors), [lambda value, factor=factor: value * factor for factor in factors]),
        (Brightness(offsets), [lambda value, offset=offset: value + offset for offset in offsets]),
    ):
        found = mutation.apply(pixels, draw)
        assert found.min() >= 0
        assert found.max() <= 1
        for image, mutant, function in zip(images, (found * 255).round().byte().numpy(), functions, strict=True):
            # Where a product ends in .5, float32 may round it to the other side.
            difference = np.abs(mutant.astype(int) - by_pil(image, function).astype(int))
            assert difference.max() <= 1
            assert (difference > 0).mean() < 0.02


def test_each_picture_has_its_own_setting():
    mutation = Contrast([0.5, 2.0])
    mixed = mutation.apply(torch.full((3, 1, 2, 2), 0.25), MutationDraw.of_batch(np.array([1, 0, 1])))
    assert mixed[:, 0, 0, 0].tolist() == [0.5, 0.125, 0.5]
    assert mutation.describe(1) == "contrast 2"
