"""Every affine mutation against scipy's affine_transform, one picture at a time."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from neuralcov.core.errors import InputError
from neuralcov.fuzz import Rotation, image_mutations, scaling, shear, translation
from neuralcov.fuzz.mutations import MutationDraw


def plain(image, matrix):
    """One picture under one map, by scipy: axes are (y, x) there, and coordinates count from the corner."""
    matrix = np.array(matrix, dtype=float).reshape(2, 3)
    centre = (np.array(image.shape[1:]) - 1) / 2
    linear, shift = matrix[::-1, 1::-1], matrix[::-1, 2]
    offset = centre + shift - linear @ centre
    return np.stack(
        [
            ndimage.affine_transform(channel, linear, offset, order=1, mode="grid-constant", cval=0)
            for channel in image.astype(float)
        ]
    )


def turned(degrees):
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return (cos, -sin, 0, sin, cos, 0)


CASES = [
    (translation([(-5, -5), (3, 0), (0, -2), (40, 0)]), lambda shift: (1, 0, -shift[0], 0, 1, -shift[1])),
    (scaling([0.8, 0.95, 1.0, 1.3]), lambda factor: (1 / factor, 0, 0, 0, 1 / factor, 0)),
    (Rotation([-30, -1, 7.5, 90]), turned),
    (shear([-0.5, 0.2]), lambda factor: (1, -factor, 0, 0, 1, 0)),
]


@pytest.mark.parametrize(("mutation", "matrix_of"), CASES, ids=lambda case: getattr(case, "name", ""))
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 8), (3, 17, 30)])
def test_against_scipy(mutation, matrix_of, shape):
    count = len(mutation.parameters)
    images = np.random.default_rng(0).random((count, *shape)).astype(np.float32)
    mutated = mutation.apply(torch.from_numpy(images), MutationDraw.of_batch(np.arange(count)))
    for image, found, parameter in zip(images, mutated.numpy(), mutation.parameters, strict=True):
        np.testing.assert_allclose(found, plain(image, matrix_of(parameter)), atol=2e-4)


def test_whole_shifts_are_exact_in_bytes():
    images = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mutation = next(found for found in image_mutations(32) if found.name == "translation")
    moved = mutation.apply(images.float() / 255, MutationDraw.of_batch(np.arange(6)))
    for image, found, (right, down) in zip(images, (moved * 255).round().byte(), mutation.parameters, strict=True):
        wanted = torch.zeros_like(image)
        ys, xs = (slice(max(0, step), 32 + min(0, step)) for step in (down, right))
        from_ys, from_xs = (slice(max(0, -step), 32 + min(0, -step)) for step in (down, right))
        wanted[:, ys, xs] = image[:, from_ys, from_xs]
        assert torch.equal(found, wanted)


def test_positive_degrees_turn_counter_clockwise():
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 8] = 1.0  # at the right
    turned_up = Rotation([90]).apply(image, MutationDraw.of_batch(np.array([0])))
    assert turned_up[0, 0, 0, 4] == pytest.approx(1.0, abs=1e-5)


def test_shifts_grow_with_the_side():
    shifts = {side: image_mutations(side)[2].parameters[0] for side in (8, 32, 128)}
    assert shifts == {8: (-1, -1), 32: (-5, -5), 128: (-20, -20)}


def test_no_usual_setting_changes_nothing():
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(3)) * 0.4 + 0.1
    for mutation in image_mutations(32):
        count = len(mutation.parameters)
        changed = mutation.apply(image.expand(count, -1, -1, -1), MutationDraw.of_batch(np.arange(count)))
        assert ((changed - image).abs().flatten(1).amax(1) > 1 / 255).all(), mutation


def test_scaling_by_nothing_is_refused():
    with pytest.raises(InputError, match="scaling by 0: expected factors above 0"):
        scaling([0])
