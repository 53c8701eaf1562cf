"""The base of criteria that tick off cells: a bitmap, and each criterion's own rule for what a batch hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.counts import VALID, count_admitted, no_counts, not_finite
from neuralcov.core.criterion import ALL_PROMISES, Criterion, State, widths_of
from neuralcov.core.layout import Layout, group_by_width, in_execution_order
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int, Shaped


@dataclass(frozen=True, eq=False)
class BitmapState(State, name="bitmap"):
    """Which cells of neurons are covered, per group of layers: ``(layers, width, 1 + cells)``.

    Cell 0 stands for "nothing hit" and is always covered, so that a rule may point every neuron of every input
    somewhere and no mask is needed. With a single cell per neuron it is left out and the shape is ``(layers, width)``.
    """

    covered: tuple[Bool[Tensor, "_layers _width ..."], ...]


# Under the name that files know it by: NPC's was the first.
@dataclass(frozen=True, eq=False)
class FlatBitmapState(State, name="npc"):
    """Which cells are covered that belong to no neuron, in the shape the criterion gives them."""

    covered: Bool[Tensor, "..."]


AnyBitmap = BitmapState | FlatBitmapState


@dataclass(frozen=True, eq=False)
class BitmapCriterion(Criterion[AnyBitmap], base=True):
    """Tick off cells: the value is the share of cells that some input hit.

    Usually every neuron has :attr:`cells` cells, and :meth:`hits` says which of them an input hits. Where cells belong
    to no neuron, give their :meth:`shape` and :meth:`flat_hits` instead.
    """

    @property
    @override
    def promises(self) -> frozenset[str]:
        return ALL_PROMISES

    @property
    @override
    def fixed_size(self) -> bool:
        # What finds flat hits may wait for the device.
        return not self._flat

    @property
    def cells(self) -> int:
        """Return cells per neuron."""
        return 1

    def hits(self, stack: Stack) -> Shaped[Tensor, "batch layers width"]:
        """Return which cell of each neuron every input hits: whether, for one cell; 0 (none) to ``cells``, for several.

        Hits of rows that are not valid are dropped afterwards.
        """
        raise NotImplementedError(f"{type(self).__name__}: define hits(stack), or shape(layout) and flat_hits(batch)")

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Return the shape of the cells, where these belong to no neuron."""
        raise NotImplementedError(f"{type(self).__name__}: flat_hits(batch) goes with shape(layout)")

    def flat_hits(self, batch: Activations) -> Int[Tensor, "batch k"]:
        """Return up to k cells that each input hits, by their numbers in :meth:`shape` read row by row; −1 for none.

        Hits of inputs that :meth:`exclusions` names are dropped afterwards.
        """
        raise NotImplementedError(f"{type(self).__name__}: shape(layout) goes with flat_hits(batch)")

    @override
    def init(self, layout: Layout) -> AnyBitmap:
        counts, widths = no_counts(layout), widths_of(layout)
        if self._flat:
            return FlatBitmapState(counts, widths, _nothing(self.shape(layout), layout))
        if self.cells == 1:
            return BitmapState(counts, widths, tuple(_nothing((len(g), g.width), layout) for g in layout.groups))
        covered = tuple(_nothing((len(g), g.width, 1 + self.cells), layout) for g in layout.groups)
        for ticks in covered:
            ticks[..., 0] = True
        return BitmapState(counts, widths, covered)

    @override
    def observe(self, state: AnyBitmap, batch: Activations, *, donate: bool = False) -> AnyBitmap:
        covered = _parts(state) if donate else [ticks.clone() for ticks in _parts(state)]
        for index, _, hits in self._hits(state, batch):
            hits.cover(covered[index])
        if not self._flat:
            return _with(state, state.counts + batch.input_counts, covered)
        exclusions = self.exclusions(batch)
        return _with(state, count_admitted(state.counts, exclusions == VALID, exclusions), covered)

    @override
    def merge(self, a: AnyBitmap, b: AnyBitmap) -> AnyBitmap:
        covered = [x | y for x, y in zip(_parts(a), _parts(b), strict=True)]
        return _with(a, a.counts + b.counts, covered)

    @override
    def value(self, state: AnyBitmap) -> Float[Tensor, ""]:
        if isinstance(state, FlatBitmapState):
            return state.covered.sum().double() / state.covered.numel()
        ticked = torch.stack([self._ticked(ticks).sum() for ticks in state.covered]).sum()
        return ticked.double() / self._total(state)

    @override
    def by_layer(self, state: AnyBitmap) -> Float[Tensor, "layers"] | None:
        if isinstance(state, FlatBitmapState):
            return None
        shares = [self._ticked(t).double() / (t.shape[1] * self.cells) for t in state.covered]
        return in_execution_order(state.widths, shares)

    @override
    def uncovered(self, state: AnyBitmap) -> tuple[Bool[Tensor, "width"], ...] | None:
        if isinstance(state, FlatBitmapState):
            return None
        groups = group_by_width({str(position): width for position, width in enumerate(state.widths)})
        bare: dict[int, Tensor] = {}
        for group, ticks in zip(groups, state.covered, strict=True):
            covered = ticks if self.cells == 1 else ticks[..., 1:].any(-1)
            bare.update(zip(group.positions, ~covered, strict=True))
        return tuple(bare[position] for position in range(len(state.widths)))

    @override
    def gain(self, state: AnyBitmap, batch: Activations) -> Float[Tensor, "batch"]:
        fresh = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        parts = _parts(state)
        for index, rows, hits in self._hits(state, batch):
            fresh[rows] += hits.fresh(parts[index])
        return fresh.double() / self._total(state)

    @override
    def admit(
        self, state: AnyBitmap, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], AnyBitmap]:
        """Admit, in order, inputs that hit a cell nothing before them has: the first to hit any cell not yet covered.

        An input that hits none of these adds nothing, so that all inputs can be looked at together.
        """
        if min_gain != 0:
            return super().admit(state, batch, min_gain=min_gain)
        # One entry more than there are inputs takes cells that nothing hits.
        admitted = torch.zeros(batch.size + 1, dtype=torch.bool, device=batch.device)
        numbers = torch.arange(batch.size, device=batch.device)
        covered = [ticks.clone() for ticks in _parts(state)]
        for index, rows, hits in self._hits(state, batch):
            first = hits.first(covered[index], numbers[rows], batch.size)
            hits.cover(covered[index])
            admitted[first.view(-1)] = True
        counts = count_admitted(state.counts, admitted[:-1], self.exclusions(batch))
        return admitted[:-1], _with(state, counts, covered)

    @override
    def first_shown(self, state: AnyBitmap, batch: Activations) -> Int[Tensor, "batch"]:
        """Count the cells that each input is the first to hit."""
        numbers = torch.arange(batch.size, device=batch.device)
        covered, shown = [ticks.clone() for ticks in _parts(state)], torch.zeros_like(numbers)
        for index, rows, hits in self._hits(state, batch):
            first = hits.first(covered[index], numbers[rows], batch.size).view(-1)
            hits.cover(covered[index])
            # The last entry is that of cells which nothing hits.
            shown += torch.bincount(first, minlength=batch.size + 1)[:-1]
        return shown

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        return not_finite(batch)

    @property
    def _flat(self) -> bool:
        return type(self).flat_hits is not BitmapCriterion.flat_hits

    def _hits(self, state: AnyBitmap, batch: Activations) -> Iterator[tuple[int, slice, _Hits]]:
        """Yield what parts of a batch hit: the index of the bitmap, the inputs, the hits."""
        if isinstance(state, FlatBitmapState):
            valid = self.exclusions(batch) == VALID
            yield 0, slice(0, batch.size), _CellNumbers(self.flat_hits(batch).masked_fill(~valid[:, None], -1))
            return
        for stack in batch.stacks:
            for rows, part in _row_blocks(stack):
                hits = self.hits(part)
                if part.valid is not None:
                    hits = hits.masked_fill(~part.valid[:, :, None], 0)
                yield stack.group, rows, _Marks(hits) if self.cells == 1 else _CellOfNeuron(hits, self.cells)

    def _ticked(self, ticks: Tensor) -> Tensor:
        """Count the covered cells per layer, without the one that stands for nothing."""
        return ticks.sum(1) if self.cells == 1 else ticks[..., 1:].sum((1, 2))

    def _total(self, state: AnyBitmap) -> int:
        """Count all cells."""
        if isinstance(state, FlatBitmapState):
            return state.covered.numel()
        return state.neurons * self.cells


class _Hits(Protocol):
    """What some inputs hit of one bitmap."""

    def cover(self, ticks: Tensor) -> None:
        """Tick off what is hit, in place."""

    def fresh(self, ticks: Tensor) -> Tensor:
        """Count, per input, the cells it hits that are not covered."""

    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        """Return, per cell, the number of the first input that hits it; ``nobody`` where it is covered or not hit."""


@dataclass(frozen=True, eq=False)
class _Marks:
    """Whether each neuron's only cell is hit."""

    marks: Bool[Tensor, "inputs layers width"]

    def cover(self, ticks: Tensor) -> None:
        ticks.logical_or_(self.marks.any(0))

    def fresh(self, ticks: Tensor) -> Tensor:
        return (self.marks & ~ticks).sum((1, 2))

    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        return torch.where(self.marks & ~ticks, numbers[:, None, None], nobody).amin(0)


class _CellOfNeuron:
    """Which of several cells of each neuron is hit; 0, which is always covered, for none."""

    def __init__(self, hits: Int[Tensor, "inputs layers width"], cells: int) -> None:
        self._shape = hits.shape
        # In the batch's own order, which memory likes best.
        neurons = torch.arange(hits.shape[1] * hits.shape[2], device=hits.device).view(hits.shape[1:])
        self._places = (hits + neurons * (1 + cells)).view(-1)

    def cover(self, ticks: Tensor) -> None:
        ticks.view(-1).scatter_(0, self._places, True)

    def fresh(self, ticks: Tensor) -> Tensor:
        return (~ticks.view(-1)[self._places].view(self._shape)).sum((1, 2))

    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        rows = numbers[:, None, None].expand(self._shape).reshape(-1)
        first = torch.full((ticks.numel(),), nobody, device=ticks.device)
        return first.scatter_reduce_(0, self._places, rows, "amin").masked_fill_(ticks.view(-1), nobody)


class _CellNumbers:
    """Up to k cells of a whole bitmap that each input hits, −1 for none."""

    def __init__(self, cells: Int[Tensor, "inputs k"]) -> None:
        # Sorted, so that a cell which an input names twice counts once.
        self._cells = cells.sort(1).values

    def _places(self, ticks: Tensor) -> Tensor:
        """Return the cells with one past the last for none."""
        return torch.where(self._cells >= 0, self._cells, ticks.numel())

    def cover(self, ticks: Tensor) -> None:
        hit = torch.zeros(ticks.numel() + 1, dtype=torch.bool, device=ticks.device)
        hit.scatter_(0, self._places(ticks).flatten(), True)
        ticks.logical_or_(hit[:-1].reshape(ticks.shape))

    def fresh(self, ticks: Tensor) -> Tensor:
        known = torch.cat([ticks.flatten(), torch.ones_like(ticks.flatten()[:1])])
        fresh = ~known[self._places(ticks)]
        fresh[:, 1:] &= self._cells[:, 1:] != self._cells[:, :-1]
        return fresh.sum(1)

    def first(self, ticks: Tensor, numbers: Tensor, nobody: int) -> Tensor:
        rows = numbers[:, None].expand(self._cells.shape).reshape(-1)
        first = torch.full((ticks.numel() + 1,), nobody, device=ticks.device)
        first.scatter_reduce_(0, self._places(ticks).flatten(), rows, "amin")
        return first[:-1].masked_fill(ticks.flatten(), nobody)


def _nothing(shape: Sequence[int], layout: Layout) -> Tensor:
    """Return cells none of which is covered."""
    return torch.zeros(tuple(shape), dtype=torch.bool, device=layout.device)


def _parts(state: AnyBitmap) -> Sequence[Tensor]:
    """Return the bitmaps of a state."""
    return (state.covered,) if isinstance(state, FlatBitmapState) else state.covered


def _with(state: AnyBitmap, counts: Tensor, covered: Sequence[Tensor]) -> AnyBitmap:
    """Return a state like this one with other counts and bitmaps."""
    if isinstance(state, FlatBitmapState):
        return FlatBitmapState(counts, state.widths, covered[0])
    return BitmapState(counts, state.widths, tuple(covered))


def _row_blocks(stack: Stack) -> list[tuple[slice, Stack]]:
    """Cut a stack into parts that suit the device, each with its rows."""
    size, layers, width = stack.values.shape
    cut = list(blocks(size, layers * width, stack.values.device))
    return [(rows, stack if len(cut) == 1 else stack.take(rows)) for rows in cut]
