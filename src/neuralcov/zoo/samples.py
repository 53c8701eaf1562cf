"""A split of a data set held whole as tensors, served in batches by slicing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralcov.core.shapes import Int, Shaped


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and labels of one split.

    Args:
        name: what it is, for messages and reports.
        inputs: images as ``(n, channels, height, width)`` unsigned bytes, or whatever else the model takes.
        labels: ``(n,)`` classes.
        classes: the classes' names.
        levels: the byte that stands for 1.0, for images.
        mean: per channel, subtracted from pixels in [0, 1] before the model sees them.
        std: per channel, by which they are then divided.
    """

    name: str
    inputs: Shaped[Tensor, "n ..."]
    labels: Int[Tensor, "n"]
    classes: tuple[str, ...]
    levels: int = 255
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on another device."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def take(self, rows: slice | Tensor, name: str | None = None) -> Samples:
        """Some of the samples."""
        return replace(self, name=name or self.name, inputs=self.inputs[rows], labels=self.labels[rows])

    def pixels(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """Images as floats in [0, 1]; inputs of any other kind as they are."""
        chosen = self.inputs[rows]
        return chosen.float() / self.levels if chosen.dtype == torch.uint8 else chosen

    def prepare(self, pixels: Tensor) -> Tensor:
        """From pixels in [0, 1] to what the model takes."""
        if not self.mean:
            return pixels
        shape = (1, len(self.mean), 1, 1)
        mean = torch.tensor(self.mean, device=pixels.device).reshape(shape)
        std = torch.tensor(self.std, device=pixels.device).reshape(shape)
        return (pixels - mean) / std

    def batches(self, size: int = 100) -> Batches:
        """The samples in order, ready for the model, as ``(inputs, labels)``."""
        return Batches(self, size)


@dataclass(frozen=True, eq=False)
class Batches:
    """A loader: iterate over it as often as you like."""

    samples: Samples
    size: int

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self.samples), self.size):
            rows = slice(start, start + self.size)
            yield self.samples.prepare(self.samples.pixels(rows)), self.samples.labels[rows]
