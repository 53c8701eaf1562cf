"""Held-out training inputs: which they are, and what every criterion shows for them once it is calibrated.

An input is held out by its content key, whatever batch it comes in: the second word of the key, read as a number from
0 to 1, is below the share. The same number puts held-out inputs in order, so that a reference for n of them is that of
a random n, though data lie by class. Folds are dealt by the first word, which this leaves alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import SPLIT_FREE, Criterion
from neuralcov.core.errors import InputError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool
from neuralcov.results.references import ReferenceCurve

# Activations of held-out inputs are kept up to so many bytes; of more inputs, references are for those kept.
_MOST_BYTES = 1 << 30


def checked_share(share: float) -> float:
    """Return a share of training inputs to hold out; refuse what is none."""
    if isinstance(share, bool) or not 0 < share < 1:
        raise InputError(f"held_out={share!r}: expected a share between 0 and 1, such as 0.1, or a loader")
    return float(share)


def ranks(batch: Activations) -> np.ndarray:
    """Return a number from 0 to 1 for every input, decided by its content alone."""
    words = batch.dealing_keys[:, 1].cpu().contiguous().numpy().view(np.uint64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def held_out_by(batch: Activations, share: float) -> Bool[Tensor, "batch"]:
    """Return which inputs of a batch a share holds out."""
    return torch.from_numpy(ranks(batch) < share)


class HeldOut:
    """Keep what layers gave for held-out inputs until criteria are calibrated, those of smallest rank.

    Args:
        most_bytes: how many bytes of activations to keep.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._parts: list[Activations] = []
        self._below = math.inf
        self.batch_size = 1
        """The largest batch of training data, of which inputs were held out or not."""

    def add(self, batch: Activations) -> None:
        """Keep a batch on the host; inputs whose outputs are not finite show nothing."""
        self.batch_size = max(self.batch_size, batch.size)
        there = batch.finite.cpu() & torch.from_numpy(ranks(batch) < self._below)
        if bool(there.any()):
            self._parts.append(_on(replace(batch, ids=None, metadata={}).take(there), torch.device("cpu")))
        while sum(map(_bytes, self._parts)) > self._most_bytes and self.inputs > 1:
            whole = self._sorted()
            half = whole.take(slice(0, whole.size // 2))
            self._below = float(ranks(whole)[whole.size // 2])
            # A copy, so that the rest is freed.
            self._parts = [_on(half.take(torch.arange(half.size)), torch.device("cpu"))]

    @property
    def inputs(self) -> int:
        """How many inputs are kept."""
        return sum(part.size for part in self._parts)

    def _sorted(self) -> Activations:
        whole = Activations.cat(self._parts)
        return whole.take(torch.from_numpy(np.argsort(ranks(whole), kind="stable")))

    @ordinary_tensors
    def references(self, criteria: Sequence[Criterion[Any]], layout: Layout) -> dict[str, ReferenceCurve]:
        """Return every calibrated criterion's values at doubling numbers of these inputs, and at all of them.

        Criteria that say themselves what they are relative to training data have none. One whose value depends on
        batches is measured anew at each size, in batches as large as the largest.
        """
        if not self.inputs:
            return {}
        whole = self._sorted()
        self._parts = [whole]
        found = {}
        for criterion in criteria:
            curve = _curve(criterion, whole, layout, self.batch_size)
            if curve is not None:
                found[criterion.name] = curve
        return found


def _curve(criterion: Criterion[Any], whole: Activations, layout: Layout, batch_size: int) -> ReferenceCurve | None:
    sizes, values = [], []
    state, done = criterion.init(layout), 0
    for size in sorted({*(1 << power for power in range(whole.size.bit_length())), whole.size}):
        if SPLIT_FREE not in criterion.promises:
            state, done = criterion.init(layout), 0
        for start, end in _pieces(done, size, batch_size):
            state = criterion.observe(state, _on(whole.take(slice(start, end)), layout.device), donate=True)
        done = size
        value = float(criterion.value(state))
        if math.isfinite(value):
            sizes.append(size)
            values.append(value)
    if not sizes or "relative" in criterion.details(state):
        return None
    return ReferenceCurve(tuple(sizes), tuple(values), criterion.definition)


def _pieces(start: int, end: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces from one place to another begin and end, each at most so long."""
    for place in range(start, end, length):
        yield place, min(place + length, end)


def _on(batch: Activations, device: torch.device) -> Activations:
    """Return a batch on a device."""

    def moved(tensors: Any) -> dict[str, Tensor]:
        return {name: tensor.detach().to(device) for name, tensor in tensors.items()}

    return replace(
        batch,
        layers=moved(batch.layers),
        labels=None if batch.labels is None else batch.labels.to(device),
        predictions=None if batch.predictions is None else batch.predictions.to(device),
        relevance=None if batch.relevance is None else moved(batch.relevance),
        present=moved(batch.present),
        keys=None if batch.keys is None else batch.keys.to(device),
        tokens=None if batch.tokens is None else batch.tokens.to(device),
        sources=None if batch.sources is None else batch.sources.to(device),
        valid=None if batch.valid is None else batch.valid.to(device),
    )


def _bytes(batch: Activations) -> int:
    tensors = [*batch.layers.values(), *(batch.relevance or {}).values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
