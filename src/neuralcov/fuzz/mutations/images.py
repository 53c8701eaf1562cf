"""Mutate images: colour, blur, movement, and augmentations of kornia."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError
from neuralcov.fuzz.mutations.mutation import FunctionMutation, ListedMutation, MutationDraw

BlurKernel = tuple[str, int]

# The widths of the bilateral filter: of colours, in parts of the range and summed over channels, and of distances.
COLOUR_WIDTH = 75 / 255
DISTANCE_WIDTH = 75.0
_BYTES_AT_ONCE = 256 << 20
_LINEAR = ("box", "gaussian")


class Blur(ListedMutation):
    """Blur by a kernel of one shape and size, such as ``("gaussian", 5)``.

    Args:
        kernels: ``("box", k)``, ``("gaussian", k)``, ``("median", k)`` or ``("bilateral", k)`` with windows of k × k
            pixels; k is odd but for the box. A Gaussian of size k has σ = 0.3·((k − 1)/2 − 1) + 0.8.
    """

    def __init__(self, kernels: Sequence[BlurKernel]) -> None:
        for name, size in kernels:
            if name not in ("box", "gaussian", "median", "bilateral") or size < 2 or (name != "box" and size % 2 == 0):
                raise InputError(
                    f"blur {name!r} of size {size}: expected box, gaussian, median or bilateral of at least 2 pixels, "
                    "an odd number unless it is a box"
                )
        super().__init__("blur", kernels, geometric=False)
        self._linear = np.array([name in _LINEAR for name, _ in kernels])
        self._weights = window_weights(kernels)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        # Boxes and Gaussians together, as weights along both axes; medians and bilateral filters by size.
        result = torch.empty_like(batch)
        linear = np.flatnonzero(self._linear[draw.setting])
        if len(linear):
            where = torch.from_numpy(linear).to(batch.device, non_blocking=True)
            result[where] = smoothed(batch[where], self._weights[draw.setting[linear]])
        for setting in np.unique(draw.setting[~self._linear[draw.setting]]):
            name, size = self.parameters[setting]
            where = torch.from_numpy(np.flatnonzero(draw.setting == setting)).to(batch.device, non_blocking=True)
            result[where] = (median if name == "median" else bilateral)(batch[where], size)
        return result


def window_weights(kernels: Sequence[BlurKernel]) -> np.ndarray:
    """Return ``(kernels, window)``: weights along one axis, in windows of one size whose middle is the pixel itself.

    >>> window_weights([("box", 2), ("gaussian", 3), ("median", 3)]).astype(float).round(2).tolist()
    [[0.5, 0.5, 0.0], [0.24, 0.52, 0.24], [0.0, 0.0, 0.0]]
    """
    reach = max((size // 2 for name, size in kernels if name in _LINEAR), default=0)
    weights = np.zeros((len(kernels), 2 * reach + 1), dtype=np.float32)
    for row, (name, size) in enumerate(kernels):
        if name in _LINEAR:
            weights[row, reach - size // 2 : reach - size // 2 + size] = kernel(name, size)
    return weights


def smoothed(images: Tensor, weights: np.ndarray) -> Tensor:
    """Blur every picture by its own weights, along the rows and then along the columns."""
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


def kernel(name: str, size: int) -> np.ndarray:
    """Return the weights of a box or a Gaussian along one axis."""
    if name == "box":
        return np.full(size, 1 / size)
    sigma = 0.3 * ((size - 1) / 2 - 1) + 0.8
    weights = np.exp(-0.5 * ((np.arange(size) - size // 2) / sigma) ** 2)
    return np.asarray(weights / weights.sum())


def median(images: Tensor, size: int) -> Tensor:
    """Return the median of every window, channel by channel."""

    def middle(some: Tensor) -> Tensor:
        # Sorting, since the median itself is not reproducible on a GPU.
        return _windows(some, size).sort(-1).values[..., size * size // 2]

    return _in_parts(images, size, middle)


def bilateral(images: Tensor, size: int) -> Tensor:
    """Return the mean of every window, weighted by nearness in distance and colour, summed over channels."""
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
    """Return what every window holds, ``(batch, channels, height, width, size²)``."""
    reach = size // 2
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    return padded.unfold(2, size, 1).unfold(3, size, 1).flatten(4)


def _in_parts(images: Tensor, size: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to so many pictures at a time as their windows fit into memory."""
    each = max(1, images[0].numel() * size * size * images.element_size())
    count = max(1, math.floor(_BYTES_AT_ONCE / each))
    return torch.cat([function(some) for some in torch.split(images, count)])


_BYTE = 255


class Contrast(ListedMutation):
    """Multiply every pixel by a factor, as OpenCV's ``convertScaleAbs`` and kornia's ``adjust_contrast`` do it."""

    def __init__(self, factors: Sequence[float]) -> None:
        super().__init__("contrast", factors, geometric=False)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        return (batch * self.table(draw, batch)[:, None, None, None]).clamp(0, 1)


class Brightness(ListedMutation):
    """Add the same to every pixel, in steps of 1/255 as the public tools count."""

    def __init__(self, offsets: Sequence[int]) -> None:
        super().__init__("brightness", offsets, geometric=False)

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        return (batch + self.table(draw, batch)[:, None, None, None] / _BYTE).clamp(0, 1)


class Affine(ListedMutation):
    """Map pictures by an affine map about their centre.

    ``matrices[i]`` is the map of parameter i in pixels: where ``(2, 3) · (x, y, 1)`` of a point of the result lies
    in the original, x to the right and y down from the centre. ``border`` is what surrounds the original.
    """

    def __init__(
        self, name: str, parameters: Sequence[Any], matrices: Sequence[Sequence[float]], border: str = "black"
    ) -> None:
        super().__init__(name, parameters, geometric=True)
        if border not in ("black", "white"):
            raise InputError(f"{name} with a border {border!r}: expected 'black' or 'white'")
        self.matrices = np.array(matrices, dtype=np.float32).reshape(-1, 2, 3)
        self.border = border

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        matrices = torch.from_numpy(self.matrices[draw.setting]).to(batch.device, non_blocking=True)
        return warp(batch, matrices) if self.border == "black" else 1 - warp(1 - batch, matrices)

    @override
    def identity(self) -> dict[str, Any]:
        return {**super().identity(), **({} if self.border == "black" else {"border": self.border})}


def translation(shifts: Sequence[tuple[int, int]]) -> Affine:
    """Move by whole pixels, ``(right, down)``."""
    return Affine("translation", shifts, [(1, 0, -right, 0, 1, -down) for right, down in shifts])


def scaling(factors: Sequence[float], border: str = "black") -> Affine:
    """Enlarge by a factor, or make smaller by one below 1, within a black or white border."""
    for factor in factors:
        if factor <= 0:
            raise InputError(f"scaling by {factor}: expected factors above 0")
    return Affine("scaling", factors, [(1 / factor, 0, 0, 0, 1 / factor, 0) for factor in factors], border)


class Rotation(Affine):
    """Turn counter-clockwise by degrees."""

    unit = " degrees"

    def __init__(self, degrees: Sequence[float]) -> None:
        turns = [(math.cos(math.radians(angle)), math.sin(math.radians(angle))) for angle in degrees]
        super().__init__("rotation", degrees, [(cos, -sin, 0, sin, cos, 0) for cos, sin in turns])


def shear(factors: Sequence[float]) -> Affine:
    """Move every row to the right by a multiple of its distance below the centre."""
    return Affine("shear", factors, [(1, -factor, 0, 0, 1, 0) for factor in factors])


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Return pictures ``(batch, channels, height, width)`` under maps ``(batch, 2, 3)`` in pixels about the centre."""
    height, width = images.shape[2:]
    # From pixels to the coordinates of grid_sample, in which the picture's edges are at -1 and 1.
    half = torch.tensor([width / 2, height / 2])
    scale = torch.cat([half, torch.ones(1)]) / half[:, None]
    grid = functional.affine_grid(matrices * scale.to(matrices.device), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def kornia_mutation(augmentation: Any, *, geometric: bool | None = None, name: str | None = None) -> FunctionMutation:
    """Make a mutation of an augmentation of kornia, such as ``kornia.augmentation.RandomPerspective(p=1.0)``.

    What it draws is drawn anew from the campaign's own randomness, so that it can be repeated like any other.

    Args:
        augmentation: a module that takes and gives pictures ``(batch, channels, height, width)`` in [0, 1].
        geometric: whether it moves the whole picture; by default what kornia says it is.
        name: by default that of its class.
    """
    base = require("kornia.augmentation", "augmentations of kornia", extra="fuzz")
    if not isinstance(augmentation, base.AugmentationBase2D):
        raise InputError(f"{augmentation!r}: expected an augmentation of kornia for pictures")
    if geometric is None:
        geometric = isinstance(augmentation, base.GeometricAugmentationBase2D)

    def drawn(images: Tensor, generator: torch.Generator) -> Tensor:
        devices = [images.device] if images.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # kornia draws from the global generators
            torch.manual_seed(generator.initial_seed())
            found: Tensor = augmentation(images)
            return found

    return FunctionMutation(drawn, geometric=geometric, name=name or type(augmentation).__name__)
