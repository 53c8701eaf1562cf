"""Contrast and brightness: every pixel multiplied, or with something added."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from neuralcov.fuzz.mutations.mutation import Draw, ListedMutation

_BYTE = 255


class Contrast(ListedMutation):
    """Every pixel multiplied by a factor, as OpenCV's ``convertScaleAbs`` and kornia's ``adjust_contrast`` do it."""

    def __init__(self, factors: Sequence[float]) -> None:
        super().__init__("contrast", factors, geometric=False)

    def apply(self, batch: Tensor, draw: Draw) -> Tensor:
        """Multiply; what leaves [0, 1] is cut off."""
        return (batch * self.table(draw, batch)[:, None, None, None]).clamp(0, 1)


class Brightness(ListedMutation):
    """The same added to every pixel, in steps of 1/255 as the public tools count."""

    def __init__(self, offsets: Sequence[int]) -> None:
        super().__init__("brightness", offsets, geometric=False)

    def apply(self, batch: Tensor, draw: Draw) -> Tensor:
        """Add; what leaves [0, 1] is cut off."""
        return (batch + self.table(draw, batch)[:, None, None, None] / _BYTE).clamp(0, 1)
