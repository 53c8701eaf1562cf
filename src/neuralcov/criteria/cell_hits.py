"""What some inputs hit of a bitmap, in each of the three forms that criteria tell it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Int
from neuralcov.criteria.kind_set import FOLD_COUNT, FOLDS

LEFT_OUT = FOLD_COUNT
"""The fold of inputs whose hits are not to be marked."""


class CellHits(Protocol):
    """What some inputs hit of one bitmap."""

    def cover(self, ticks: Tensor) -> None:
        """Tick off what is hit, in place."""

    def fresh(self, ticks: Tensor) -> Tensor:
        """Count, per input, the cells it hits that are not covered."""

    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        """Return, per cell, the number of the first input that hits it; ``nobody`` where it is covered or not hit."""

    def mark(self, planes: Bool[Tensor, "folds_and_one *cells"], folds: Int[Tensor, "inputs"]) -> None:
        """Mark each cell that is hit in the plane of the input's fold, in place."""


@dataclass(frozen=True, eq=False)
class NeuronMarks(CellHits):
    """Whether each neuron's only cell is hit."""

    marks: Bool[Tensor, "inputs layers width"]

    @override
    def cover(self, ticks: Tensor) -> None:
        ticks.logical_or_(self.marks.any(0))

    @override
    def fresh(self, ticks: Tensor) -> Tensor:
        return (self.marks & ~ticks).sum((1, 2))

    @override
    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        return torch.where(self.marks & ~ticks, numbers[:, None, None], nobody).amin(0)

    @override
    def mark(self, planes: Tensor, folds: Tensor) -> None:
        # A product counts the hits of each fold at once, and waits for nothing.
        dealt = folds == torch.arange(len(planes), device=folds.device)[:, None]
        hits = dealt.float() @ self.marks.flatten(1).float()
        planes.logical_or_(hits.view(planes.shape) > 0)


class CellOfNeuron(CellHits):
    """Which of several cells of each neuron is hit; 0, which is always covered, for none."""

    def __init__(self, hits: Int[Tensor, "inputs layers width"], cells: int) -> None:
        self._shape = hits.shape
        # In the batch's own order, which memory likes best.
        neurons = torch.arange(hits.shape[1] * hits.shape[2], device=hits.device).view(hits.shape[1:])
        self._places = (hits + neurons * (1 + cells)).view(-1)

    @override
    def cover(self, ticks: Tensor) -> None:
        ticks.view(-1).scatter_(0, self._places, True)

    @override
    def fresh(self, ticks: Tensor) -> Tensor:
        return (~ticks.view(-1)[self._places].view(self._shape)).sum((1, 2))

    @override
    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        rows = numbers[:, None, None].expand(self._shape).reshape(-1)
        first = torch.full((ticks.numel(),), nobody, device=ticks.device)
        return first.scatter_reduce_(0, self._places, rows, "amin").masked_fill_(ticks.view(-1), nobody)

    @override
    def mark(self, planes: Tensor, folds: Tensor) -> None:
        begins = folds[:, None, None] * planes[0].numel()
        planes.view(-1).scatter_(0, (self._places.view(self._shape) + begins).view(-1), True)


class CellNumbers(CellHits):
    """Up to k cells of a whole bitmap that each input hits, −1 for none."""

    def __init__(self, cells: Int[Tensor, "inputs k"]) -> None:
        # Sorted, so that a cell which an input names twice counts once.
        self._cells = cells.sort(1).values

    def _places(self, ticks: Tensor) -> Tensor:
        """Return the cells with one past the last for none."""
        return torch.where(self._cells >= 0, self._cells, ticks.numel())

    @override
    def cover(self, ticks: Tensor) -> None:
        hit = torch.zeros(ticks.numel() + 1, dtype=torch.bool, device=ticks.device)
        hit.scatter_(0, self._places(ticks).flatten(), True)
        ticks.logical_or_(hit[:-1].reshape(ticks.shape))

    @override
    def fresh(self, ticks: Tensor) -> Tensor:
        known = torch.cat([ticks.flatten(), torch.ones_like(ticks.flatten()[:1])])
        fresh = ~known[self._places(ticks)]
        fresh[:, 1:] &= self._cells[:, 1:] != self._cells[:, :-1]
        return fresh.sum(1)

    @override
    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        rows = numbers[:, None].expand(self._cells.shape).reshape(-1)
        first = torch.full((ticks.numel() + 1,), nobody, device=ticks.device)
        first.scatter_reduce_(0, self._places(ticks).flatten(), rows, "amin")
        return first[:-1].masked_fill(ticks.flatten(), nobody)

    @override
    def mark(self, planes: Tensor, folds: Tensor) -> None:
        begins = folds[:, None] * planes[0].numel()
        # What hits nothing goes to a cell of the inputs that are left out.
        places = torch.where(self._cells >= 0, self._cells + begins, LEFT_OUT * planes[0].numel())
        planes.view(-1).scatter_(0, places.flatten(), True)


def empty_planes(ticks: Bool[Tensor, "*cells"]) -> Bool[Tensor, "folds_and_one *cells"]:
    """Return a plane of cells for each fold, and one more for inputs that are left out."""
    return torch.zeros(FOLD_COUNT + 1, *ticks.shape, dtype=torch.bool, device=ticks.device)


def fold_bits(planes: Bool[Tensor, "folds_and_one *cells"]) -> Int[Tensor, "*cells"]:
    """Return, per cell, a bit for each fold that has hit it."""
    cells = planes[:FOLD_COUNT].flatten(1)
    powers = 1 << torch.arange(FOLD_COUNT, dtype=FOLDS, device=planes.device)[:, None]
    # Block by block: words for every plane at once would take twenty bytes a cell.
    parts = [(cells[:, some] * powers).sum(0, dtype=FOLDS) for some in blocks(cells.shape[1], FOLD_COUNT, cells.device)]
    return torch.cat(parts).view(planes.shape[1:])
