"""Every blur against scipy or plain loops, one picture at a time; and against kornia where it is installed."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from neuralcov.core.errors import InputError
from neuralcov.fuzz import Blur, image_mutations
from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.mutations.images import COLOUR_WIDTH, DISTANCE_WIDTH, bilateral, median, smoothed, window_weights


def plain(image, kind, size):
    if kind == "bilateral":
        return plain_bilateral(image, size)
    filters = {
        "box": lambda channel: ndimage.uniform_filter(channel, size, mode="nearest"),
        "gaussian": lambda channel: ndimage.gaussian_filter(
            channel, 0.3 * ((size - 1) / 2 - 1) + 0.8, mode="nearest", radius=size // 2
        ),
        "median": lambda channel: ndimage.median_filter(channel, size, mode="nearest"),
    }
    return np.stack([filters[kind](channel.astype(float)) for channel in image])


def plain_bilateral(image, size):
    reach = size // 2
    padded = np.pad(image.astype(float), ((0, 0), (reach, reach), (reach, reach)), mode="edge")
    result = np.zeros(image.shape)
    for y in range(image.shape[1]):
        for x in range(image.shape[2]):
            total, weights = np.zeros(len(image)), 0.0
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    other = padded[:, y + dy + reach, x + dx + reach]
                    colour = np.abs(other - image[:, y, x]).sum() / COLOUR_WIDTH
                    weight = math.exp(-0.5 * (dy**2 + dx**2) / DISTANCE_WIDTH**2) * math.exp(-0.5 * colour**2)
                    total, weights = total + weight * other, weights + weight
            result[:, y, x] = total / weights
    return result


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 8, 8), (3, 7, 12)])
def test_against_plain_filters(shape):
    mutation = next(found for found in image_mutations() if found.name == "blur")
    count = len(mutation.parameters)
    images = np.random.default_rng(1).random((count, *shape)).astype(np.float32)
    blurred = mutation.apply(torch.from_numpy(images), MutationDraw.of_batch(np.arange(count)))
    for image, found, (kind, size) in zip(images, blurred.numpy(), mutation.parameters, strict=True):
        np.testing.assert_allclose(found, plain(image, kind, size), atol=2e-6, err_msg=f"{kind} {size}")


def test_against_kornia():
    kornia = pytest.importorskip("kornia")
    images = torch.rand(4, 3, 20, 20, generator=torch.Generator().manual_seed(0))
    filters = kornia.filters
    found = smoothed(images, window_weights([("box", 5)] * 4))
    torch.testing.assert_close(found, filters.box_blur(images, 5, border_type="replicate"), atol=1e-6, rtol=0)
    sigma = 0.3 * (2 - 1) + 0.8
    wanted = filters.gaussian_blur2d(images, 5, (sigma, sigma), border_type="replicate")
    torch.testing.assert_close(smoothed(images, window_weights([("gaussian", 5)] * 4)), wanted, atol=1e-6, rtol=0)
    inner = (..., slice(2, -2), slice(2, -2))  # kornia continues medians with zeros
    torch.testing.assert_close(median(images, 5)[inner], filters.median_blur(images, 5)[inner])
    wanted = filters.bilateral_blur(images, 5, COLOUR_WIDTH, (DISTANCE_WIDTH, DISTANCE_WIDTH), border_type="replicate")
    torch.testing.assert_close(bilateral(images, 5), wanted, atol=1e-5, rtol=0)


def test_a_picture_is_blurred_alike_in_any_batch():
    mutation = image_mutations()[-1]
    images = torch.rand(10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    together = mutation.apply(images, MutationDraw.of_batch(np.arange(10)))
    for row in range(10):
        alone = mutation.apply(images[row : row + 1], MutationDraw.of_batch(np.array([row])))
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("kind", [("box", 1), ("gaussian", 4), ("radial", 3)])
def test_kinds_that_do_not_exist_are_refused(kind):
    with pytest.raises(InputError, match="expected box, gaussian, median or bilateral"):
        Blur([kind])
