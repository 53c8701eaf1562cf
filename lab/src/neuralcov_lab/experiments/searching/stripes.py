"""Change whole regions of a picture by one colour each: perturbations that are continuous, as BET has them.

BET (Wang et al., "BET: black-box efficient testing for convolutional neural networks", ISSTA 2022) finds that
convolutional networks are misled by perturbations whose neighbouring pixels are alike, and searches through them by
an objective over the decision boundaries of several classes. Only its abstract was at hand: what follows is built
after that idea, not after its algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.fuzz.mutations.mutation import Mutation, MutationDraw
from neuralcov.fuzz.randomness import uniform

SHAPES = ("bands", "square")
STRENGTHS = (0.03, 0.06, 0.1)
_KEYS = 1 << 48
# Numbers are drawn for direction, width and place first, then for colours.
_FIRST = 8


class ContinuousPerturbation(Mutation):
    """Add a constant to every channel of a region: bands across the picture, or one square.

    Args:
        shape: ``bands``, which cover the picture and each have colours of their own, or ``square``.
        strength: what is added or taken away, as a share of the range.
    """

    geometric = False

    def __init__(self, shape: str, strength: float) -> None:
        self.shape, self.strength = shape, strength
        self.name = f"{shape} of {strength:g}"

    @override
    def choose(self, chances: np.ndarray) -> np.ndarray:
        return (chances * _KEYS).astype(np.int64)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        keys = torch.from_numpy(draw.setting).to(batch.device, non_blocking=True)
        change = _bands(batch, keys) if self.shape == "bands" else _square(batch, keys)
        return (batch + self.strength * change).clamp(0, 1)

    @override
    def describe(self, setting: int) -> str:
        return f"{self.name} with key {setting}"

    @override
    def identity(self) -> dict[str, Any]:
        return {"name": self.name, "geometric": False, "shape": self.shape, "strength": self.strength}


def continuous_perturbations() -> list[Mutation]:
    """Return bands and squares of every strength, each a mutation of its own, so that a search can tell them apart."""
    return [ContinuousPerturbation(shape, strength) for shape in SHAPES for strength in STRENGTHS]


def _bands(batch: Tensor, keys: Tensor) -> Tensor:
    """Return −1 or 1 for every value: equal along a row or a column, and across bands of 1 to 8 of them."""
    channels, height, width = batch.shape[1:]
    side = max(height, width)
    places = torch.arange(side, device=batch.device)
    band = places // (1 + (uniform(keys, 1) * 8).long())[:, None]
    index = _FIRST + band[:, None, :] * channels + torch.arange(channels, device=batch.device)[None, :, None]
    signs = _sign(uniform(keys[:, None, None], index))
    across = (uniform(keys, 2) < 0.5)[:, None, None, None]
    columns = signs[:, :, None, :width].expand(-1, -1, height, -1)
    rows = signs[:, :, :height, None].expand(-1, -1, -1, width)
    return torch.where(across, rows, columns)


def _square(batch: Tensor, keys: Tensor) -> Tensor:
    """Return −1 or 1 for the values of a square of a tenth to a half of the picture's side, 0 elsewhere."""
    channels, height, width = batch.shape[1:]
    side = ((0.1 + 0.4 * uniform(keys, 1)) * min(height, width)).ceil()
    inside = []
    for number, length in ((2, height), (3, width)):
        first = (uniform(keys, number) * (length - side + 1)).floor()[:, None]
        place = torch.arange(length, device=batch.device)
        inside.append((place >= first) & (place < first + side[:, None]))
    index = _FIRST + torch.arange(channels, device=batch.device)
    signs = _sign(uniform(keys[:, None], index))[:, :, None, None]
    return signs * (inside[0][:, None, :, None] & inside[1][:, None, None, :])


def _sign(numbers: Tensor) -> Tensor:
    return torch.where(numbers < 0.5, -1.0, 1.0)
