"""Criteria that tick off slots of neurons: a bitmap, and each criterion's own rule for what a batch hits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.criterion import (
    ALL_PROMISES,
    Criterion,
    State,
    counted,
    no_counts,
    not_finite,
    widths_of,
)
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int, Shaped


@dataclass(frozen=True, eq=False)
class Ticks(State, name="bitmap"):
    """Which slots are covered, per group of layers: ``(layers, width, 1 + slots)``.

    Slot 0 stands for "nothing hit" and is always covered, so that a rule may point every neuron of
    every input somewhere and no mask is needed. With a single slot per neuron it is left out and the
    shape is ``(layers, width)``.
    """

    covered: tuple[Bool[Tensor, "_layers _width ..."], ...]


@dataclass(frozen=True, eq=False)
class SlotCriterion(Criterion[Ticks]):
    """Base of criteria whose every neuron has ``slots`` slots, of which an input hits at most one."""

    @property
    def promises(self) -> frozenset[str]:
        """A bitmap keeps them all."""
        return ALL_PROMISES

    @property
    def fixed_size(self) -> bool:
        """A bitmap has one size."""
        return True

    @property
    def slots(self) -> int:
        """Slots per neuron."""
        return 1

    @abstractmethod
    def hits(self, stack: Stack, group: int) -> Shaped[Tensor, "batch layers width"]:
        """Which slot each input hits: whether, for one slot; 0 (none) to ``slots``, for several.

        ``group`` is the index of the stack among the layout's groups. Rows that do not count need no
        care here.
        """

    def init(self, layout: Layout) -> Ticks:
        """No slot covered."""
        covered = []
        for group in layout.groups:
            shape = (len(group), group.width) + ((1 + self.slots,) if self.slots > 1 else ())
            ticks = torch.zeros(shape, dtype=torch.bool, device=layout.device)
            if self.slots > 1:
                ticks[..., 0] = True
            covered.append(ticks)
        return Ticks(no_counts(layout), widths_of(layout), tuple(covered))

    def observe(self, state: Ticks, batch: Activations, *, donate: bool = False) -> Ticks:
        """Tick off what the batch hits."""
        covered = state.covered if donate else tuple(ticks.clone() for ticks in state.covered)
        for group, stack in enumerate(batch.stacks):
            for _, part in _row_blocks(stack):
                hits = self._counted_hits(part, group)
                if self.slots == 1:
                    covered[group].logical_or_(hits.any(0))
                else:
                    covered[group].view(-1).scatter_(0, self._places(hits), True)
        return Ticks(state.counts + batch.tally, state.widths, covered)

    def merge(self, a: Ticks, b: Ticks) -> Ticks:
        """Slots covered by either."""
        covered = tuple(x | y for x, y in zip(a.covered, b.covered, strict=True))
        return Ticks(a.counts + b.counts, a.widths, covered)

    def value(self, state: Ticks) -> Float[Tensor, ""]:
        """Covered slots divided by all slots."""
        ticked = torch.stack([self._ticked(ticks).sum() for ticks in state.covered]).sum()
        return ticked.double() / (state.neurons * self.slots)

    def by_layer(self, state: Ticks) -> Float[Tensor, "layers"]:
        """Covered slots of each layer divided by the layer's slots."""
        shares = [self._ticked(t).double() / (t.shape[1] * self.slots) for t in state.covered]
        return in_execution_order(state.widths, shares)

    def gain(self, state: Ticks, batch: Activations) -> Float[Tensor, "batch"]:
        """Slots each input would newly cover, divided by all slots."""
        fresh = torch.zeros(batch.size, dtype=torch.int64, device=batch.device)
        for group, stack in enumerate(batch.stacks):
            ticks = state.covered[group]
            for rows, part in _row_blocks(stack):
                hits = self._counted_hits(part, group)
                if self.slots == 1:
                    fresh[rows] += (hits & ~ticks).sum((1, 2))
                else:
                    seen = ticks.view(-1)[self._places(hits)].view(hits.shape)
                    fresh[rows] += (~seen).sum((1, 2))
        return fresh.double() / (state.neurons * self.slots)

    def admit(self, state: Ticks, batch: Activations, *, min_gain: float = 0.0) -> tuple[Bool[Tensor, "batch"], Ticks]:
        """In order, inputs that hit a slot nothing before them has: the first to hit any slot not yet covered.

        An input that hits none of these adds nothing, so that all inputs can be looked at together.
        """
        if min_gain != 0:
            return super().admit(state, batch, min_gain=min_gain)
        # One entry more than there are inputs takes what nothing hits.
        taken = torch.zeros(batch.size + 1, dtype=torch.bool, device=batch.device)
        numbers = torch.arange(batch.size, device=batch.device)
        covered = tuple(ticks.clone() for ticks in state.covered)
        for group, stack in enumerate(batch.stacks):
            for rows, part in _row_blocks(stack):
                hits = self._counted_hits(part, group)
                if self.slots == 1:
                    first = torch.where(hits & ~covered[group], numbers[rows, None, None], batch.size).amin(0)
                    covered[group].logical_or_(hits.any(0))
                else:
                    place = self._places(hits)
                    row = numbers[rows, None, None].expand(hits.shape).reshape(-1)
                    first = torch.full((covered[group].numel(),), batch.size, device=batch.device)
                    first.scatter_reduce_(0, place, row, "amin").masked_fill_(covered[group].view(-1), batch.size)
                    covered[group].view(-1).scatter_(0, place, True)
                taken[first.view(-1)] = True
        counts = counted(state.counts, taken[:-1], self.exclusions(batch))
        return taken[:-1], Ticks(counts, state.widths, covered)

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Inputs that are not finite; any other has its place."""
        return not_finite(batch)

    def _counted_hits(self, stack: Stack, group: int) -> Tensor:
        hits = self.hits(stack, group)
        if stack.counted is None:
            return hits
        return hits.masked_fill(~stack.counted[:, :, None], 0)

    def _places(self, hits: Tensor) -> Tensor:
        """Where in the flattened ticks each hit stands. In the batch's own order, which memory likes best."""
        neurons = torch.arange(hits.shape[1] * hits.shape[2], device=hits.device).view(hits.shape[1:])
        return (hits + neurons * (1 + self.slots)).view(-1)

    def _ticked(self, ticks: Tensor) -> Tensor:
        """Number of covered slots per layer, without the slot that stands for nothing."""
        return ticks.sum(1) if self.slots == 1 else ticks[..., 1:].sum((1, 2))


def _row_blocks(stack: Stack) -> list[tuple[slice, Stack]]:
    """Cut a stack into parts that suit the device, each with its rows."""
    size, layers, width = stack.values.shape
    cut = list(blocks(size, layers * width, stack.values.device))
    return [(rows, stack if len(cut) == 1 else stack.take(rows)) for rows in cut]
