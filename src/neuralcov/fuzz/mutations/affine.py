"""Translation, scaling, rotation and shear: each picture under its own affine map, bilinear, black from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov.fuzz.mutations.mutation import Draw, ListedMutation


class Affine(ListedMutation):
    """An affine map about the centre of the picture.

    ``matrices[i]`` is the map of parameter i in pixels: where ``(2, 3) · (x, y, 1)`` of a point of the result lies
    in the original, x to the right and y down from the centre.
    """

    def __init__(self, name: str, parameters: Sequence[Any], matrices: Sequence[Sequence[float]]) -> None:
        super().__init__(name, parameters, geometric=True)
        self.matrices = np.array(matrices, dtype=np.float32).reshape(-1, 2, 3)

    def apply(self, batch: Tensor, draw: Draw) -> Tensor:
        """Every picture under its own map."""
        return warp(batch, torch.from_numpy(self.matrices[draw.setting]).to(batch.device, non_blocking=True))


def translation(shifts: Sequence[tuple[int, int]]) -> Affine:
    """Moved by whole pixels, ``(right, down)``."""
    return Affine("translation", shifts, [(1, 0, -right, 0, 1, -down) for right, down in shifts])


def scaling(factors: Sequence[float]) -> Affine:
    """Enlarged by a factor, or made smaller by one below 1."""
    for factor in factors:
        if factor <= 0:
            raise InputError(f"scaling by {factor}: expected factors above 0")
    return Affine("scaling", factors, [(1 / factor, 0, 0, 0, 1 / factor, 0) for factor in factors])


class Rotation(Affine):
    """Turned counter-clockwise by degrees."""

    unit = " degrees"

    def __init__(self, degrees: Sequence[float]) -> None:
        turns = [(math.cos(math.radians(angle)), math.sin(math.radians(angle))) for angle in degrees]
        super().__init__("rotation", degrees, [(cos, -sin, 0, sin, cos, 0) for cos, sin in turns])


def shear(factors: Sequence[float]) -> Affine:
    """Every row moved to the right by a multiple of its distance below the centre."""
    return Affine("shear", factors, [(1, -factor, 0, 0, 1, 0) for factor in factors])


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Pictures ``(batch, channels, height, width)`` under maps ``(batch, 2, 3)`` in pixels about the centre."""
    height, width = images.shape[2:]
    # From pixels to the coordinates of grid_sample, in which the picture's edges are at -1 and 1.
    half = torch.tensor([width / 2, height / 2])
    scale = torch.cat([half, torch.ones(1)]) / half[:, None]
    grid = functional.affine_grid(matrices * scale.to(matrices.device), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
