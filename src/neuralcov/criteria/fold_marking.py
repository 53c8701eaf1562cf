"""Marking, while a batch is observed, which folds of it hit each cell of a bitmap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Bool, Int
from neuralcov.criteria.bitmap_states import AnyBitmap, Folds, folds_of, parts_of
from neuralcov.criteria.cell_hits import LEFT_OUT, CellHits, empty_planes, fold_bits
from neuralcov.criteria.kind_set import FOLD_COUNT


@dataclass(frozen=True, eq=False)
class FoldMarking:
    """Mark which folds of a batch hit each cell: a plane of cells for each fold, packed into words at the end."""

    dealt: Int[Tensor, "batch"]
    planes: Sequence[Bool[Tensor, "folds_and_one ..."]]

    @classmethod
    def of(cls, state: AnyBitmap, batch: Activations, inputs: Bool[Tensor, "batch"]) -> FoldMarking:
        """Begin for a batch, of which only some inputs count."""
        dealt = batch.folds(FOLD_COUNT).masked_fill(~inputs, LEFT_OUT)
        return cls(dealt, [empty_planes(ticks) for ticks in parts_of(state)])

    def mark(self, index: int, rows: slice, hits: CellHits) -> None:
        """Mark what some inputs hit of one bitmap."""
        hits.mark(self.planes[index], self.dealt[rows])

    def folds(self, state: AnyBitmap) -> Folds | None:
        """Return the folds of a state with those of the batch."""
        kept = folds_of(state)
        if kept is None:
            return None
        bits = [old | fold_bits(planes) for old, planes in zip(kept[0], self.planes, strict=True)]
        added = (self.dealt[:, None] == torch.arange(FOLD_COUNT, device=self.dealt.device)).sum(0)
        return bits, kept[1] + added
