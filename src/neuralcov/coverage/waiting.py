"""Small batches on a CPU wait for each other: what starting a batch's statistics costs is then shared by many.

A small network's pass takes a few tenths of a millisecond, and so does starting the operations of a criterion. So for
criteria that say so (``Criterion.waits``) batches are kept until some hundred inputs have come together, or until
somebody looks at a state. Then they are observed as one where that leaves the same state to the last bit, and otherwise
each by itself, in one go, which a processor's cache likes better than in turn with a model. Nothing else tells the
difference: whoever reads states, or what was seen, has all that was observed before.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.coverage.suite_counts import DECISIONS, decisions_of

# A batch waits if its outputs take at most so much, and all wait until so much or so many inputs have come together:
# few enough for the processor's cache.
_SMALL_BATCH = 1 << 18
_MOST_BYTES = 1 << 22
_MOST_INPUTS = 1 << 10


@dataclass(frozen=True)
class WaitingBatches:
    """Hold batches until they are observed as one; another batch makes another of these, so that taking it is one step.

    ``form`` is that of the last batch which was observed by itself: what speaks against such batches was said there.
    ``times`` are those of the first and the last of ``batches``, in seconds since 1970.
    """

    form: tuple[Hashable, ...] | None = None
    batches: tuple[Activations, ...] = ()
    inputs: int = 0
    bytes: int = 0
    times: tuple[float, float] | None = None

    @property
    def full(self) -> bool:
        """Return whether enough has come together."""
        return self.inputs >= _MOST_INPUTS or self.bytes >= _MOST_BYTES

    def may_take(self, batch: Activations) -> bool:
        """Return whether a batch may wait: a small one in memory, in the form of one observed before."""
        return self.form is not None and _bytes(batch) <= _SMALL_BATCH and form_of(batch) == self.form

    def with_batch(self, batch: Activations) -> WaitingBatches:
        """Let a batch wait as well. Its outputs and keys are its own; labels, classes and masks may be others'."""
        own = replace(
            batch,
            labels=_copy(batch.labels),
            predictions=_copy(batch.predictions),
            present={name: mask.clone() for name, mask in batch.present.items()},
            valid=_copy(batch.valid),
        )
        decisions = None if batch.predictions is not None else _copy(decisions_of(batch))
        if decisions is not None:
            own.shared(DECISIONS, lambda: decisions)
        now = time.time()
        return WaitingBatches(
            self.form,
            (*self.batches, own),
            self.inputs + batch.size,
            self.bytes + _bytes(batch),
            (now if self.times is None else self.times[0], now),
        )

    def joined(self) -> Activations:
        """Return all that wait as one batch."""
        whole = Activations.cat(self.batches)
        if whole.predictions is None:
            decisions = [decisions_of(batch) for batch in self.batches]
            there = [each for each in decisions if each is not None]
            if len(there) == len(decisions):
                whole.shared(DECISIONS, lambda: torch.cat(there))
        return whole


def _copy(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _bytes(batch: Activations) -> int:
    """Return what a batch's outputs take; asked twice of a batch that waits."""
    return batch.shared("bytes", lambda: sum([outputs.nbytes for outputs in batch.layers.values()]))


def form_of(batch: Activations) -> tuple[Hashable, ...] | None:
    """Return what batches that are joined have in common; ``None`` for one that is observed by itself."""
    if batch.relevance is not None or batch.tokens is not None or batch.sources is not None:
        return None
    kinds = {(outputs.dtype, outputs.device.type) for outputs in batch.layers.values()}
    if len(kinds) > 1 or kinds.pop()[1] != "cpu":
        return None
    parts = (batch.labels, batch.predictions, decisions_of(batch), batch.keys, batch.ids)
    first = next(iter(batch.layers.values()))
    channels = None if batch.moments is None else batch.moments.shape[1]
    return (first.dtype, channels, *batch.metadata, *(part is None for part in parts))
