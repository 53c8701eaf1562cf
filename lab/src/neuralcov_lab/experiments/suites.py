"""The suites that experiments compare, each a function of its definition and a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples

PIXEL, NORMALISED = "pixel", "normalised"


@dataclass(frozen=True)
class NoisyCopies:
    """Copies of a few images with white noise: standard normal, cut off at ±bound; iterate as often as you like.

    The i-th copy is of seed i modulo their number. In pixel units noise is added to pixels in [0, 1], which stay
    there; in normalised units to what the network takes, where nothing limits the sum.

    Args:
        seeds: the images.
        count: how many copies.
        bound: of the noise.
        unit: ``pixel`` or ``normalised``.
        batch: copies at a time.
        number: of the noise; another number, other noise.
    """

    seeds: Samples
    count: int
    bound: float
    unit: str
    batch: int
    number: int = 0

    def __post_init__(self) -> None:
        if self.unit not in (PIXEL, NORMALISED):
            raise InputError(f"noise in {self.unit!r} units: expected {PIXEL!r} or {NORMALISED!r}")

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self.seeds.inputs.device
        random = torch.Generator(device).manual_seed(self.number)
        pixels = self.seeds.pixels()
        for start in range(0, self.count, self.batch):
            rows = torch.arange(start, min(start + self.batch, self.count), device=device) % len(self.seeds)
            noise = torch.randn((len(rows), *pixels.shape[1:]), generator=random, device=device)
            noise = noise.clamp_(-self.bound, self.bound)
            if self.unit == PIXEL:
                inputs = self.seeds.prepare((pixels[rows] + noise).clamp_(0, 1))
            else:
                inputs = self.seeds.prepare(pixels[rows]) + noise
            yield inputs, self.seeds.labels[rows]


@dataclass(frozen=True)
class ShuffledWords:
    """Copies of a few texts with their words in random order; padding stays behind. Iterate as often as you like."""

    seeds: Samples
    count: int
    batch: int
    number: int = 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        lengths = self.seeds.lengths
        if lengths is None:
            raise InputError(f"{self.seeds.name} has no lengths: shuffling is for padded texts")
        device = self.seeds.inputs.device
        random = torch.Generator(device).manual_seed(self.number)
        steps = torch.arange(self.seeds.inputs.shape[1], device=device)
        for start in range(0, self.count, self.batch):
            rows = torch.arange(start, min(start + self.batch, self.count), device=device) % len(self.seeds)
            keys = torch.rand((len(rows), len(steps)), generator=random, device=device)
            # Words are sorted by random keys below 1; padding has keys above and so stays where it is.
            keys = torch.where(steps < lengths[rows][:, None], keys, 1.0 + steps)
            tokens = self.seeds.inputs[rows].gather(1, keys.argsort(1))
            yield {"tokens": tokens, "lengths": lengths[rows], "labels": self.seeds.labels[rows]}


@dataclass(frozen=True)
class SubstitutedWords:
    """Copies of a few texts with words replaced by any of the vocabulary, each with the same chance.

    Args:
        seeds: the texts.
        count: how many copies; the i-th is of seed i modulo their number.
        share: the chance of a word to be replaced.
        batch: copies at a time.
        number: of the random numbers; another number, other words.
    """

    seeds: Samples
    count: int
    share: float
    batch: int
    number: int = 0

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        lengths, words = self.seeds.lengths, self.seeds.words
        if lengths is None or words is None:
            raise InputError(f"{self.seeds.name} has no lengths or no vocabulary: substitution is for padded texts")
        device = self.seeds.inputs.device
        random = torch.Generator(device).manual_seed(self.number)
        steps = torch.arange(self.seeds.inputs.shape[1], device=device)
        for start in range(0, self.count, self.batch):
            rows = torch.arange(start, min(start + self.batch, self.count), device=device) % len(self.seeds)
            size = (len(rows), len(steps))
            # The first two words stand for padding and for all that are not listed.
            others = torch.randint(2, len(words), size, generator=random, device=device)
            chosen = torch.rand(size, generator=random, device=device) < self.share
            tokens = self.seeds.inputs[rows]
            tokens = torch.where(chosen & (steps < lengths[rows][:, None]), others.to(tokens.dtype), tokens)
            yield {"tokens": tokens, "lengths": lengths[rows], "labels": self.seeds.labels[rows]}


def of_classes(samples: Samples, classes: Tensor) -> Tensor:
    """Return the rows of some classes."""
    return torch.isin(samples.labels, classes.to(samples.labels.device)).nonzero()[:, 0]


@dataclass(frozen=True)
class Latents:
    """Inputs of a class-conditional generator: normal noise and a class each. Iterate as often as you like.

    Args:
        noise: ``(n, length)``.
        labels: ``(n,)``.
        batch: inputs at a time.
    """

    noise: Tensor
    labels: Tensor
    batch: int

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(torch.split(self.noise, self.batch), torch.split(self.labels, self.batch), strict=True)

    def take(self, rows: Tensor) -> Latents:
        """Return some of them."""
        return Latents(self.noise[rows], self.labels[rows], self.batch)


def normal_latents(count: int, classes: int, length: int, batch: int, random: torch.Generator) -> Latents:
    """``count`` inputs, as many of each class, classes in turn."""
    noise = torch.randn(count // classes * classes, length, generator=random, device=random.device)
    labels = torch.arange(len(noise), device=random.device) % classes
    return Latents(noise, labels, batch)


def generative_schemes(whole: Latents, classes: int) -> dict[str, Latents]:
    """Return the paper's schemes: all, a half and a tenth of each class, and half and a tenth of the classes."""
    number = torch.arange(len(whole), device=whole.labels.device) // classes
    per_class = len(whole) // classes
    schemes = {"Normal": whole}
    for part in (2, 10):
        schemes[f"N/{part}"] = whole.take((number < max(1, per_class // part)).nonzero()[:, 0])
    for part in (2, 10):
        schemes[f"C/{part}"] = whole.take((whole.labels < max(1, classes // part)).nonzero()[:, 0])
    return schemes
