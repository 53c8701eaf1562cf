"""Read data named on the command line whole and in pixel space, for commands that change inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.data import load_data
from neuralcov.sources.samples import Batches, NamedBatches, Samples
from neuralcov.tap import unpack_batch


def load_samples(
    text: str, *, mean: tuple[float, ...] = (), std: tuple[float, ...] = (), split: str = "test"
) -> Samples:
    """Read inputs with their labels: images as bytes or floats in [0, 1], or tokens.

    Args:
        text: as for :func:`neuralcov.sources.data.load_data`.
        mean: per channel, for data that does not bring its own.
        std: per channel, likewise.
        split: the part of an offered data set meant when it does not say.
    """
    found = load_data(text, batch_size=1000, split=split)
    if isinstance(found.loader, (Batches, NamedBatches)):
        samples = found.loader.samples
    else:
        samples = _gathered(found.name, found.loader)
    if len(mean) != len(std):
        raise InputError(f"{len(mean)} means and {len(std)} deviations: expected one of each per channel")
    return replace(samples, mean=mean, std=std) if mean else samples


def choose(samples: Samples, count: int | None, seed: int) -> Samples:
    """Return so many of the samples, drawn at random; all where there are fewer."""
    if count is None or count >= len(samples):
        return samples
    rows = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))[:count]
    return samples.take(rows.sort().values)


def parse_channels(text: str | None) -> tuple[float, ...]:
    """Read numbers separated by commas.

    >>> parse_channels("0.5,0.4,0.3")
    (0.5, 0.4, 0.3)
    """
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"{text!r}: expected numbers separated by commas, one per channel") from error


def _gathered(name: str, loader: Iterable[object]) -> Samples:
    batches = [unpack_batch(item) for item in loader]
    inputs, labels = [batch.inputs for batch in batches], [batch.labels for batch in batches]
    if not inputs or not all(isinstance(part, Tensor) for part in inputs) or any(part is None for part in labels):
        raise InputError(f"data {name!r}: expected batches of (inputs, labels): fuzzing starts from known classes")
    known = torch.cat([part for part in labels if part is not None])
    classes = tuple(str(number) for number in range(int(known.max()) + 1))
    return Samples(name, torch.cat(inputs), known, classes)
