"""Hold a split of a data set whole as tensors, and serve it in batches by slicing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.errors import InputError
from neuralcov.core.input_names import Column, pick, pick_columns
from neuralcov.core.shapes import Int, Shaped
from neuralcov.sources.text_call import TextCall
from neuralcov.tap import Batch

# Classes have names, which are kept; no data set comes near so many.
_MOST_CLASSES = 10_000_000


def require_classes(name: str, highest: int) -> None:
    """Refuse data in which one label is so high that it can be no class."""
    if highest >= _MOST_CLASSES:
        raise InputError(f"{name}: has label {highest}: expected classes from 0, fewer than {_MOST_CLASSES:,}")


@dataclass(frozen=True, eq=False)
class Samples:
    """Hold inputs and labels of one split.

    Args:
        name: what it is, for messages and reports.
        inputs: images as ``(n, channels, height, width)`` unsigned bytes, or whatever else the model takes.
        labels: ``(n,)`` classes.
        classes: the classes' names.
        levels: the byte that stands for 1.0, for images.
        mean: per channel, subtracted from pixels in [0, 1] before the model sees them.
        std: per channel, by which they are then divided.
        lengths: ``(n,)`` steps of each input, for sequences padded to one length.
        words: the vocabulary of texts, a word per token.
        text_call: how the model takes tokens, for texts of one's own.
        ids: a name for each input, such as its path, where it has one.
        metadata: column → a value for each input.
    """

    name: str
    inputs: Shaped[Tensor, "n ..."]
    labels: Int[Tensor, "n"]
    classes: tuple[str, ...]
    levels: int = 255
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    lengths: Int[Tensor, "n"] | None = None
    words: tuple[str, ...] | None = None
    text_call: TextCall | None = None
    ids: Column | None = None
    metadata: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def to(self, device: torch.device | str) -> Samples:
        """Return the same samples on another device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device), lengths=lengths)

    def take(self, rows: slice | Tensor, name: str | None = None) -> Samples:
        """Return some of the samples."""
        return replace(
            self,
            name=name or self.name,
            inputs=self.inputs[rows],
            labels=self.labels[rows],
            lengths=None if self.lengths is None else self.lengths[rows],
            ids=None if self.ids is None else pick(self.ids, rows),
            metadata=pick_columns(self.metadata, rows),
        )

    def sha256(self) -> str:
        """Return the SHA-256 of inputs and labels, in hexadecimal digits: the same wherever the samples lie."""
        digest = hashlib.sha256(f"{self.inputs.dtype} {tuple(self.inputs.shape)}".encode())
        for tensor in (self.inputs, self.labels):
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def pixels(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """Return images as floats in [0, 1]; inputs of any other sort as they are."""
        chosen = self.inputs[rows]
        return chosen.float() / self.levels if chosen.dtype == torch.uint8 else chosen

    def prepare(self, pixels: Tensor) -> Tensor:
        """Turn pixels in [0, 1] into what the model takes."""
        if not self.mean:
            return pixels
        if pixels.shape[1] != len(self.mean):
            raise InputError(
                f"{self.name}: images of shape {tuple(pixels.shape[1:])} and {len(self.mean)} means: expected one mean "
                "per channel, channels first"
            )
        shape = (1, len(self.mean), 1, 1)
        mean = torch.tensor(self.mean, device=pixels.device).reshape(shape)
        std = torch.tensor(self.std, device=pixels.device).reshape(shape)
        return (pixels - mean) / std

    def batches(self, size: int = 100) -> Batches:
        """Serve the samples in order, ready for the model, as ``(inputs, labels)``."""
        return Batches(self, size)

    def loader(self, size: int = 100) -> Batches:
        """Serve the samples in order for a coverage, with their names where they have some."""
        return BatchesWithNames(self, size) if self.ids is not None or self.metadata else Batches(self, size)

    def named_batches(self, size: int = 100) -> NamedBatches:
        """Serve sequences in order as keyword inputs ``tokens`` and ``lengths``, with ``labels``.

        A coverage told the lengths leaves out the steps that are padding.
        """
        return NamedBatches(self, size)


@dataclass(frozen=True, eq=False)
class Batches:
    """Load batches of samples; iterate over it as often as you like."""

    samples: Samples
    size: int

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def __iter__(self) -> Iterator[Any]:
        """Yield pairs of inputs and labels."""
        for rows in _slices(len(self.samples), self.size):
            yield self.samples.prepare(self.samples.pixels(rows)), self.samples.labels[rows]


@dataclass(frozen=True, eq=False)
class BatchesWithNames(Batches):
    """Load batches of samples with their ids and metadata."""

    @override
    def __iter__(self) -> Iterator[Batch]:
        samples = self.samples
        for rows, (inputs, labels) in zip(_slices(len(samples), self.size), super().__iter__(), strict=True):
            ids = None if samples.ids is None else samples.ids[rows]
            yield Batch(inputs, labels, ids=ids, metadata=pick_columns(samples.metadata, rows))


@dataclass(frozen=True, eq=False)
class NamedBatches:
    """Load batches of sequences as mappings; iterate over it as often as you like."""

    samples: Samples
    size: int

    def __len__(self) -> int:
        return -(-len(self.samples) // self.size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        samples = self.samples
        if samples.lengths is None:
            raise InputError(f"{samples.name} has no lengths: named batches are for padded sequences")
        for rows in _slices(len(samples), self.size):
            yield {"tokens": samples.inputs[rows], "lengths": samples.lengths[rows], "labels": samples.labels[rows]}


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, start + size)
