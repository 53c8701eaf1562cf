"""Inputs judged on the present states, to be observed later without running the model again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError, StaleProposalError
from neuralcov.core.guards import in_turn
from neuralcov.coverage.collection import CriterionCollection


class Proposal:
    """Keep inputs that were judged but not yet observed.

    ``gain`` holds, by criterion, how far each input alone would move the value.
    """

    def __init__(self, collection: CriterionCollection, batch: Activations, gain: dict[str, Tensor]) -> None:
        self.gain = gain
        self._collection, self.turn = collection, collection.turn
        self._batch = batch
        self._version = collection.version

    @classmethod
    def of(cls, collection: CriterionCollection, batch: Activations) -> Proposal:
        """Judge the inputs of a batch."""
        with collection.turn:
            return cls(collection, batch, collection.gain(batch))

    @in_turn
    def commit(self, keep: Any = None) -> None:
        """Observe the kept inputs one by one, in order; all by default.

        Refused once the coverage has changed. An ``admit`` that admitted nothing is no change: it may have counted
        excluded inputs, on which no gain depends.

        Args:
            keep: a mask over the inputs or their indices.
        """
        if self._collection.version != self._version:
            raise StaleProposalError("the coverage has changed since this proposal was made: propose again")
        kept = self._batch if keep is None else self._batch.take(self._rows(keep))
        self._collection.observe_one_by_one(kept)

    def _rows(self, keep: Any) -> Tensor:
        rows = torch.as_tensor(keep)
        if rows.dtype == torch.bool:
            if rows.shape != (self._batch.size,):
                raise InputError(
                    f"keep of shape {tuple(rows.shape)}: expected a mask of {counted(self._batch.size, 'input')}"
                )
            return rows
        if rows.numel() == 0:
            return rows.long()
        if rows.dim() != 1 or rows.is_floating_point() or rows.is_complex():
            raise InputError(f"keep of type {rows.dtype} and shape {tuple(rows.shape)}: expected a mask or indices")
        outside = rows[(rows < 0) | (rows >= self._batch.size)]
        if len(outside):
            raise InputError(
                f"keep names input {int(outside[0])}, but the proposal has {counted(self._batch.size, 'input')}"
            )
        return rows
