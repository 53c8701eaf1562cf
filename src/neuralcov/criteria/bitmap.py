"""The base of criteria that tick off cells: a bitmap, and each criterion's own rule for what a batch hits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.abundance import Estimate
from neuralcov.core.activations import Activations, Stack
from neuralcov.core.cost import Cost, Workload
from neuralcov.core.counts import VALID, count_admitted, no_counts, not_finite
from neuralcov.core.criterion import ALL_PROMISES, Criterion, widths_of
from neuralcov.core.hyper_parameters import resource
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int, Shaped
from neuralcov.core.side_by_side import SideBySide
from neuralcov.criteria.bitmap_states import (
    AnyBitmap,
    BitmapState,
    FlatBitmapState,
    Folds,
    by_place,
    folds_of,
    joined_bitmaps,
    parts_of,
)
from neuralcov.criteria.cell_hits import CellHits, CellNumbers, CellOfNeuron, NeuronMarks
from neuralcov.criteria.cells_by_folds import CellsByFolds
from neuralcov.criteria.fold_marking import FoldMarking
from neuralcov.criteria.kind_set import FOLD_COUNT, FOLDS
from neuralcov.kernels.operations import triton_available
from neuralcov.statistics.ranges import NeuronRanges

# More bytes than any tensor has.
_BEYOND = 1 << 60


@dataclass(frozen=True, eq=False)
class BitmapCriterion(Criterion[AnyBitmap], base=True):
    """Tick off cells: the value is the share of cells that some input hit.

    Usually every neuron has ``cells`` cells, and ``hits`` says which of them an input hits. Where cells belong
    to no neuron, give their ``shape`` and ``flat_hits`` instead.

    Args:
        errors: whether to keep which of ten folds of the inputs have hit each cell, for the value's standard error by
            leaving out each fold in turn. A cell then takes three bytes in place of one.
    """

    waits = "joined"

    _: KW_ONLY
    errors: bool = resource(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag(self, "errors")

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

    def tick(self, stack: Stack, ticks: Bool[Tensor, "layers width *cells"]) -> bool:
        """Tick off what a stack hits, in place and in one kernel, if there is one; return whether it was done.

        The same cells as by ``hits``. Asked only where kernels run; what says no for one stack says so for all.
        """
        return False

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Return the shape of the cells, where these belong to no neuron."""
        raise NotImplementedError(f"{type(self).__name__}: flat_hits(batch) goes with shape(layout)")

    def flat_hits(self, batch: Activations) -> Int[Tensor, "batch k"]:
        """Return up to k cells that each input hits, by their numbers in ``shape`` read row by row; −1 for none.

        Hits of inputs that ``exclusions`` names are dropped afterwards.
        """
        raise NotImplementedError(f"{type(self).__name__}: shape(layout) goes with flat_hits(batch)")

    @override
    def init(self, layout: Layout) -> AnyBitmap:
        return self._empty(layout, folded=self.errors)

    @override
    def template(self, layout: Layout) -> AnyBitmap:
        # With folds, which a state may have or not: criteria with and without errors take over each other's.
        return self._empty(layout, folded=True)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        cells = sum(math.prod(shape) for shape in self._shapes(layout))
        return Cost(cells) if cells >= _BEYOND else super().cost(layout, workload)

    def _shapes(self, layout: Layout) -> list[tuple[int, ...]]:
        if self._flat:
            return [self.shape(layout)]
        each = () if self.cells == 1 else (1 + self.cells,)
        return [(len(group), group.width, *each) for group in layout.groups]

    def _empty(self, layout: Layout, *, folded: bool) -> AnyBitmap:
        shapes = self._shapes(layout)
        covered = [torch.zeros(shape, dtype=torch.bool, device=layout.device) for shape in shapes]
        if not self._flat and self.cells > 1:
            for ticks in covered:
                ticks[..., 0] = True
        blank = BitmapState(no_counts(layout), widths_of(layout), ())
        if not folded:
            return self._with(blank, blank.counts, covered)
        folds = [torch.zeros(shape, dtype=FOLDS, device=layout.device) for shape in shapes]
        by_fold = torch.zeros(FOLD_COUNT, dtype=torch.int64, device=layout.device)
        return self._with(blank, blank.counts, covered, (folds, by_fold))

    @override
    def observe(self, state: AnyBitmap, batch: Activations, *, donate: bool = False) -> AnyBitmap:
        covered = parts_of(state) if donate else [ticks.clone() for ticks in parts_of(state)]
        marking = None if state.by_fold is None else FoldMarking.of(state, batch, self.exclusions(batch) == VALID)
        if marking is not None or not self._ticked_at_once(batch, covered):
            for index, rows, hits in self._hits(state, batch):
                hits.cover(covered[index])
                if marking is not None:
                    marking.mark(index, rows, hits)
        folds = None if marking is None else marking.folds(state)
        if not self._flat:
            return self._with(state, state.counts + batch.input_counts, covered, folds)
        exclusions = self.exclusions(batch)
        return self._with(state, count_admitted(state.counts, exclusions == VALID, exclusions), covered, folds)

    @override
    def merge(self, a: AnyBitmap, b: AnyBitmap) -> AnyBitmap:
        covered = [x | y for x, y in zip(parts_of(a), parts_of(b), strict=True)]
        ours, theirs = folds_of(a), folds_of(b)
        if ours is None or theirs is None:
            return self._with(a, a.counts + b.counts, covered)
        bits = [x | y for x, y in zip(ours[0], theirs[0], strict=True)]
        return self._with(a, a.counts + b.counts, covered, (bits, ours[1] + theirs[1]))

    @override
    def joined(self, other: Self, a: AnyBitmap, b: AnyBitmap, *, alike: bool) -> tuple[Self, AnyBitmap] | None:
        """Join the cells of neurons; those that belong to none are of several layers."""
        if isinstance(a, FlatBitmapState) or isinstance(b, FlatBitmapState):
            return None
        layers, learnt = SideBySide(a.widths, b.widths), self.learnt
        if isinstance(learnt, NeuronRanges):
            learnt = learnt.joined(other.learnt, layers)
        elif learnt is not None:
            return None  # what a subclass learnt may be of anything
        return replace(self, learnt=learnt), joined_bitmaps(a, b, layers, folded=alike)

    @override
    def value(self, state: AnyBitmap) -> Float[Tensor, ""]:
        return self._count(state).double() / self._total(state)

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
        return by_place(state.widths, [~(t if self.cells == 1 else t[..., 1:].any(-1)) for t in state.covered])

    @override
    def visited(self, state: AnyBitmap) -> tuple[Float[Tensor, "width"], ...] | None:
        if isinstance(state, FlatBitmapState) or self.cells == 1:
            return None
        return by_place(state.widths, [ticks[..., 1:].double().mean(-1) for ticks in state.covered])

    @override
    def gain(self, state: AnyBitmap, batch: Activations) -> Float[Tensor, "batch"]:
        fresh = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        parts = parts_of(state)
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
        covered = [ticks.clone() for ticks in parts_of(state)]
        for index, rows, hits in self._hits(state, batch):
            first = hits.first(covered[index], numbers[rows], batch.size)
            hits.cover(covered[index])
            admitted[first.view(-1)] = True
        admitted = admitted[:-1]
        counts = count_admitted(state.counts, admitted, self.exclusions(batch))
        if state.by_fold is None:
            return admitted, self._with(state, counts, covered)
        # Only now is it known whose hits are to be marked.
        marking = FoldMarking.of(state, batch, admitted)
        for part in self._hits(state, batch):
            marking.mark(*part)
        return admitted, self._with(state, counts, covered, marking.folds(state))

    @override
    def first_shown(self, state: AnyBitmap, batch: Activations) -> Int[Tensor, "batch"]:
        """Count the cells that each input is the first to hit."""
        numbers = torch.arange(batch.size, device=batch.device)
        covered, shown = [ticks.clone() for ticks in parts_of(state)], torch.zeros_like(numbers)
        for index, rows, hits in self._hits(state, batch):
            first = hits.first(covered[index], numbers[rows], batch.size).view(-1)
            hits.cover(covered[index])
            # The last entry is that of cells which nothing hits.
            shown += torch.bincount(first, minlength=batch.size + 1)[:-1]
        return shown

    @override
    def details(self, state: AnyBitmap) -> Mapping[str, float]:
        """Return the value's standard ``error``, by leaving out each fold in turn, where folds were kept.

        Leaving out a fold takes away the cells that only it has hit.
        """
        found = self._by_folds(state)
        error = None if found is None else found.error
        return {} if error is None else {"error": error}

    @property
    @override
    def rarefies(self) -> bool:
        return self.errors

    @override
    def rarefied(self, state: AnyBitmap, inputs: int) -> Estimate | None:
        found = self._by_folds(state)
        return None if found is None else found.rarefied(inputs)

    @override
    def forecast(self, state: AnyBitmap, inputs: int) -> float | None:
        found = self._by_folds(state)
        return None if found is None else found.forecast(inputs)

    @override
    def forecast_error(self, state: AnyBitmap, inputs: int) -> float | None:
        found = self._by_folds(state)
        return None if found is None else found.forecast_error(inputs)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        return not_finite(batch)

    @property
    def _flat(self) -> bool:
        return type(self).flat_hits is not BitmapCriterion.flat_hits

    def _hits(self, state: AnyBitmap, batch: Activations) -> Iterator[tuple[int, slice, CellHits]]:
        """Yield what parts of a batch hit: the index of the bitmap, the inputs, the hits."""
        if isinstance(state, FlatBitmapState):
            valid = self.exclusions(batch) == VALID
            yield 0, slice(0, batch.size), CellNumbers(self.flat_hits(batch).masked_fill(~valid[:, None], -1))
            return
        for stack in batch.stacks:
            for rows, part in _row_blocks(stack):
                hits = self.hits(part)
                if part.valid is not None:
                    hits = hits.masked_fill(~part.valid[:, :, None], 0)
                yield stack.group, rows, NeuronMarks(hits) if self.cells == 1 else CellOfNeuron(hits, self.cells)

    def _ticked_at_once(self, batch: Activations, covered: Sequence[Tensor]) -> bool:
        """Tick off what a batch hits in one kernel for each stack, where there is one; return whether it was done."""
        if self._flat or not triton_available(batch.device) or not batch.size or not self._tick_is_of_hits:
            return False
        return all(self.tick(stack, stack.pick(covered)) for stack in batch.stacks)

    @property
    def _tick_is_of_hits(self) -> bool:
        """Return whether no subclass has hits of its own beside a kernel that it inherited."""
        ticks, hits = (next(c for c in type(self).__mro__ if name in vars(c)) for name in ("tick", "hits"))
        return issubclass(ticks, hits)

    def _with(
        self, state: AnyBitmap, counts: Tensor, covered: Sequence[Tensor], folds: Folds | None = None
    ) -> AnyBitmap:
        """Return a state like this one with other counts and bitmaps, and these folds."""
        bits, by_fold = (None, None) if folds is None else folds
        if self._flat:
            return FlatBitmapState(counts, state.widths, covered[0], None if bits is None else bits[0], by_fold)
        return BitmapState(counts, state.widths, tuple(covered), None if bits is None else tuple(bits), by_fold)

    def _by_folds(self, state: AnyBitmap) -> CellsByFolds | None:
        """Return how many cells which folds have hit, where folds were kept."""
        kept = folds_of(state)
        if kept is None:
            return None
        bits = kept[0] if self._flat or self.cells == 1 else [part[..., 1:] for part in kept[0]]
        return CellsByFolds.of(bits, kept[1], self._total(state))

    def _ticked(self, ticks: Tensor) -> Tensor:
        """Count the covered cells per layer, without the one that stands for nothing."""
        return ticks.sum(1) if self.cells == 1 else ticks[..., 1:].sum((1, 2))

    def _count(self, state: AnyBitmap) -> Int[Tensor, ""]:
        """Count the covered cells."""
        if isinstance(state, FlatBitmapState):
            return state.covered.sum()
        return torch.stack([self._ticked(ticks).sum() for ticks in state.covered]).sum()

    def _total(self, state: AnyBitmap) -> int:
        """Count all cells."""
        if isinstance(state, FlatBitmapState):
            return state.covered.numel()
        return state.neurons * self.cells


def _row_blocks(stack: Stack) -> list[tuple[slice, Stack]]:
    """Cut a stack into parts that suit the device, each with its rows."""
    size, layers, width = stack.values.shape
    cut = list(blocks(size, layers * width, stack.values.device))
    return [(rows, stack if len(cut) == 1 else stack.take(rows)) for rows in cut]
