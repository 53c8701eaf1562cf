"""Blurring: box, Gaussian, median and bilateral, each in several sizes; borders are continued by their last pixel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.core.errors import InputError
from neuralcov.fuzz.mutations.mutation import Draw, ListedMutation

Kind = tuple[str, int]

# The widths of the bilateral filter: of colours, in parts of the range and summed over channels, and of distances.
COLOUR_WIDTH = 75 / 255
DISTANCE_WIDTH = 75.0
_BYTES_AT_ONCE = 256 << 20
_LINEAR = ("box", "gaussian")


class Blur(ListedMutation):
    """A blur of one kind and size, such as ``("gaussian", 5)``.

    Args:
        kinds: ``("box", k)``, ``("gaussian", k)``, ``("median", k)`` or ``("bilateral", k)`` with windows of k × k
            pixels; k is odd but for the box. A Gaussian of size k has σ = 0.3·((k − 1)/2 − 1) + 0.8.
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        for kind, size in kinds:
            if kind not in ("box", "gaussian", "median", "bilateral") or size < 2 or (kind != "box" and size % 2 == 0):
                raise InputError(
                    f"blur {kind!r} of size {size}: expected box, gaussian, median or bilateral of at least 2 pixels, "
                    "an odd number unless it is a box"
                )
        super().__init__("blur", kinds, geometric=False)
        self._linear = np.array([kind in _LINEAR for kind, _ in kinds])
        self._weights = window_weights(kinds)

    def apply(self, batch: Tensor, draw: Draw) -> Tensor:
        """Boxes and Gaussians together, as weights along both axes; medians and bilateral filters by size."""
        result = torch.empty_like(batch)
        linear = np.flatnonzero(self._linear[draw.setting])
        if len(linear):
            where = torch.from_numpy(linear).to(batch.device, non_blocking=True)
            result[where] = smoothed(batch[where], self._weights[draw.setting[linear]])
        for setting in np.unique(draw.setting[~self._linear[draw.setting]]):
            kind, size = self.parameters[setting]
            where = torch.from_numpy(np.flatnonzero(draw.setting == setting)).to(batch.device, non_blocking=True)
            result[where] = (median if kind == "median" else bilateral)(batch[where], size)
        return result


def window_weights(kinds: Sequence[Kind]) -> np.ndarray:
    """``(kinds, window)``: weights along one axis, in windows of the same size whose middle is the pixel itself.

    >>> window_weights([("box", 2), ("gaussian", 3), ("median", 3)]).astype(float).round(2).tolist()
    [[0.5, 0.5, 0.0], [0.24, 0.52, 0.24], [0.0, 0.0, 0.0]]
    """
    reach = max((size // 2 for kind, size in kinds if kind in _LINEAR), default=0)
    weights = np.zeros((len(kinds), 2 * reach + 1), dtype=np.float32)
    for row, (kind, size) in enumerate(kinds):
        if kind in _LINEAR:
            weights[row, reach - size // 2 : reach - size // 2 + size] = kernel(kind, size)
    return weights


def smoothed(images: Tensor, weights: np.ndarray) -> Tensor:
    """Every picture blurred by its own weights, along the rows and then along the columns."""
    before = after = weights.shape[1] // 2
    per_image = torch.from_numpy(weights).to(images.device, non_blocking=True)[:, :, None, None, None]
    for axis in (3, 2):
        around = (before, after, 0, 0) if axis == 3 else (0, 0, before, after)
        padded = functional.pad(images, around, mode="replicate")
        length = images.shape[axis]
        # One multiplication per offset, not a convolution: those are rounded to TF32 on some devices.
        images = torch.zeros_like(images)
        for offset in range(before + after + 1):
            images.addcmul_(padded.narrow(axis, offset, length), per_image[:, offset])
    return images


def kernel(kind: str, size: int) -> np.ndarray:
    """The weights of a box or a Gaussian along one axis."""
    if kind == "box":
        return np.full(size, 1 / size)
    sigma = 0.3 * ((size - 1) / 2 - 1) + 0.8
    weights = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
    return np.asarray(weights / weights.sum())


def median(images: Tensor, size: int) -> Tensor:
    """The median of every window, channel by channel."""

    def middle(some: Tensor) -> Tensor:
        # Sorting, since the median itself is not reproducible on a GPU.
        return _windows(some, size).sort(-1).values[..., size * size // 2]

    return _in_parts(images, size, middle)


def bilateral(images: Tensor, size: int) -> Tensor:
    """The mean of every window, weighted by nearness in distance and in colour, differences summed over channels."""
    reach = np.arange(size) - size // 2
    apart = torch.from_numpy((reach[:, None] ** 2 + reach[None] ** 2).reshape(-1)).to(images)
    nearness = torch.exp(-0.5 * apart / DISTANCE_WIDTH**2)

    def mean(some: Tensor) -> Tensor:
        windows = _windows(some, size)
        differences = (windows - some[..., None]).abs().sum(1, keepdim=True)
        weights = nearness * torch.exp(-0.5 * (differences / COLOUR_WIDTH).square())
        return (windows * weights).sum(-1) / weights.sum(-1)

    return _in_parts(images, size, mean)


def _windows(images: Tensor, size: int) -> Tensor:
    """``(batch, channels, height, width, size²)``: what every window holds."""
    reach = size // 2
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    return padded.unfold(2, size, 1).unfold(3, size, 1).flatten(4)


def _in_parts(images: Tensor, size: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The function over so many pictures at a time as their windows fit into memory."""
    each = max(1, images[0].numel() * size * size * images.element_size())
    count = max(1, math.floor(_BYTES_AT_ONCE / each))
    return torch.cat([function(some) for some in torch.split(images, count)])
