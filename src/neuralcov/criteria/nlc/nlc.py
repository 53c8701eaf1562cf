"""NLC, neural coverage: how far the outputs of every layer spread, correlations included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations, Stack
from neuralcov.core.cost import Cost, Workload, require_memory
from neuralcov.core.counts import NOT_PLACEABLE, VALID, count_admitted, exclude_placeless, no_counts, not_finite
from neuralcov.core.criterion import (
    MERGE_EXACT,
    NEVER_FALLS,
    ORDER_FREE,
    SPLIT_FREE,
    Criterion,
    State,
    widths_of,
)
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.projected import projected, projected_layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.side_by_side import SideBySide
from neuralcov.criteria.nlc.admission import admit_one_by_one
from neuralcov.criteria.nlc.covariance_norm import absorb_if_larger, covariance_gain, covariance_norm
from neuralcov.kernels.operations import triton_available
from neuralcov.statistics.moments import LayerMoments, empty_moments


@dataclass(frozen=True, eq=False)
class LayerCovariance(Record, name="layer-covariance"):
    """Moments of the layers of one width, and the spread they amount to."""

    moments: LayerMoments
    spread: Float[Tensor, "layers"] | None


Entry = tuple[LayerCovariance, ...]


@dataclass(frozen=True, eq=False)
class NLCState(State, name="nlc"):
    """Per class (or once, without classes) the spreads per group of layers; ``None`` for a class not seen."""

    classes: tuple[Entry | None, ...]


@dataclass(frozen=True, eq=False)
class NLC(Criterion[NLCState]):
    """Neural coverage (Yuan, Pang and Wang, ICSE 2023).

        NLC = sum over layers of ‖Σ‖₁ / m²

    with Σ the covariance (divided by n) of the outputs of layer l over the suite and ‖·‖₁ the sum of
    absolute entries. The value starts at 0 and has no upper end.

    Args:
        rule: ``"growing"``, the paper's: a layer takes a batch only if its value grows by it (the first
            always), so that the value never falls but depends on the order and size of the batches: 512
            inputs in batches of 8 gave 1.749 or 0.920 by order, 0.679 at once. ``"all"``: every batch is
            taken and the value is that of all inputs seen.
        classes: number of classes C; then every class has its own Σ and the layer's value is their mean
            over all C. Needs labels; inputs labelled outside 0 … C−1 are excluded and counted.
        sketch: look at wider layers along so many random directions, so that a layer's covariance takes 8·sketch²
            bytes whatever its width. Another number than NLC, and named so: a layer's value is that of its projection.
        memory: what the covariances of all classes may take, such as ``"16GiB"``, with what it takes to join a batch.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.NLC()])
        >>> cov.update(activations={"fc": torch.tensor([[0.0, 0.0], [2.0, 2.0]])})
        >>> cov.values()
        {'NLC': 1.0}
    """

    waits = "apart"

    rule: str = field(default="growing", kw_only=True)
    classes: int | None = field(default=None, kw_only=True)
    sketch: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.one_of(self, "rule", "growing", "all")
        if self.classes is not None:
            checks.whole_number(self, "classes", at_least=1)
        if self.sketch is not None:
            checks.whole_number(self, "sketch", at_least=1)
        super().__post_init__()

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset() if self.classes is None else frozenset({"labels"})

    @property
    @override
    def promises(self) -> frozenset[str]:
        if self.rule == "growing":
            return frozenset({NEVER_FALLS})
        return frozenset({ORDER_FREE, SPLIT_FREE, MERGE_EXACT})

    @property
    @override
    def fixed_size(self) -> bool:
        return self.classes is None

    @override
    def init(self, layout: Layout) -> NLCState:
        require_memory([self], layout)
        layout = self._along_directions(layout)
        entries = (_nothing(layout, self.rule),) if self.classes is None else (None,) * self.classes
        return NLCState(no_counts(layout), widths_of(layout), entries)

    @override
    def template(self, layout: Layout) -> NLCState:
        require_memory([self], layout)
        return self._filled(layout)

    def _filled(self, layout: Layout) -> NLCState:
        layout = self._along_directions(layout)
        entries = (_nothing(layout, self.rule),) * (self.classes or 1)
        return NLCState(no_counts(layout), widths_of(layout), entries)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        layout = self._along_directions(layout)
        # Counted by hand: a damaged file may tell of layers so wide that not even the meta device has them.
        each = sum(width**2 + width + (2 if self.rule == "growing" else 1) for width in layout.widths.values())
        # The covariances of one group of layers with a batch, beside those without it.
        joined = max(8 * len(group) * group.width**2 for group in layout.groups)
        return Cost(24 + 8 * (self.classes or 1) * each, working=joined)

    @override
    def observe(self, state: NLCState, batch: Activations, *, donate: bool = False) -> NLCState:
        batch = self._projected(batch)
        counts = state.counts + batch.input_counts
        if self.classes is None:
            return NLCState(counts, state.widths, (self._take(state.classes[0], batch, donate=donate),))
        classes = list(state.classes)
        placed = torch.zeros_like(counts[VALID])
        for label, rows in self._by_class(batch):
            part = batch.take(rows)
            # Never in place: the classes this batch does not touch stay shared with the old state.
            classes[label] = self._take(classes[label], part, donate=False)
            placed += part.input_counts[VALID]
        counts = exclude_placeless(counts, batch.input_counts[VALID] - placed)
        return NLCState(counts, state.widths, tuple(classes))

    @override
    def merge(self, a: NLCState, b: NLCState) -> NLCState:
        """Merge layer by layer: the growing rule keeps the largest of both and their union, the other the union."""
        classes = tuple(_merge_entries(x, y, _merge_groups) for x, y in zip(a.classes, b.classes, strict=True))
        return NLCState(a.counts + b.counts, a.widths, classes)

    @override
    def merge_in(self, a: NLCState, b: NLCState) -> NLCState:
        classes = tuple(_merge_entries(x, y, _merge_in_place) for x, y in zip(a.classes, b.classes, strict=True))
        return NLCState(a.counts + b.counts, a.widths, classes)

    @override
    def joined(self, other: Self, a: NLCState, b: NLCState, *, alike: bool) -> tuple[Self, NLCState]:
        layers = SideBySide(a.widths, b.widths)
        # Classes that one has met and the other has not would be other inputs, which whoever joins them looks after.
        classes = tuple(
            None if x is None or y is None else layers.groups(x, y) for x, y in zip(a.classes, b.classes, strict=True)
        )
        return self, NLCState(a.counts, layers.widths, classes)

    @override
    def value(self, state: NLCState) -> Float[Tensor, ""]:
        total = torch.zeros((), dtype=torch.float64, device=state.counts.device)
        for entry in state.classes:
            for group in entry or ():
                total = total + _spread(group).sum()
        return total / len(state.classes)

    @override
    def by_layer(self, state: NLCState) -> Float[Tensor, "layers"]:
        total = torch.zeros(len(state.widths), dtype=torch.float64, device=state.counts.device)
        for entry in state.classes:
            if entry is not None:
                total = total + in_execution_order(state.widths, [_spread(group) for group in entry])
        return total / len(state.classes)

    @override
    def gain(self, state: NLCState, batch: Activations) -> Float[Tensor, "batch"]:
        batch = self._projected(batch)
        if self.classes is None:
            return self._gain_of(state.classes[0], batch)
        gains = torch.zeros(batch.size, dtype=torch.float64, device=batch.device)
        for label, rows in self._by_class(batch):
            gains[rows] = self._gain_of(state.classes[label], batch.take(rows)) / self.classes
        return gains

    @override
    def admit(
        self, state: NLCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], NLCState]:
        """Admit, in order, inputs by which the value grows."""
        batch = self._projected(batch)
        entry = state.classes[0]
        if self.classes is not None or entry is None or _has_empty_layers(entry):
            return super().admit(state, batch, min_gain=min_gain)
        if triton_available(batch.device):
            growing = self.rule == "growing"
            moments = tuple(group.moments for group in entry)
            admitted, moved, spreads = admit_one_by_one(moments, batch, growing=growing, min_gain=min_gain)
            # No layer takes an excluded input, but its gain of 0 exceeds a negative limit.
            admitted = admitted & batch.finite
            groups = tuple(LayerCovariance(m, s if growing else None) for m, s in zip(moved, spreads, strict=True))
            counts = count_admitted(state.counts, admitted, self.exclusions(batch))
            return admitted, NLCState(counts, state.widths, (groups,))
        if self.rule != "growing" or min_gain != 0:
            return super().admit(state, batch, min_gain=min_gain)
        # Under the growing rule, observing tells whether an input gains, and changes nothing if it does not.
        admitted = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        before = state
        for index in range(batch.size):
            after = self.observe(state, batch.take(slice(index, index + 1)), donate=index > 0)
            admitted[index] = self.value(after) > self.value(state)
            state = after
        counts = count_admitted(before.counts, admitted, self.exclusions(batch))
        return admitted, NLCState(counts, state.widths, state.classes)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        found = not_finite(batch)
        if self.classes is None:
            return found
        assert batch.labels is not None
        labels = batch.labels.to(batch.device)
        return torch.where((labels < 0) | (labels >= self.classes), NOT_PLACEABLE, VALID).where(batch.finite, found)

    def _along_directions(self, layout: Layout) -> Layout:
        return layout if self.sketch is None else projected_layout(layout, self.sketch)

    def _projected(self, batch: Activations) -> Activations:
        return batch if self.sketch is None else projected(batch, self.sketch)

    def _gain_of(self, entry: Entry | None, batch: Activations) -> Tensor:
        gains = torch.zeros(batch.size, dtype=torch.float64, device=batch.device)
        for group, stack in zip(entry or (), batch.stacks, strict=entry is not None):
            change = covariance_gain(group.moments, stack.values)
            if stack.valid is not None:
                change = change.masked_fill(~stack.valid, 0)
            gains += (change.clamp(min=0) if self.rule == "growing" else change).sum(1)
        return gains

    def _by_class(self, batch: Activations) -> Iterator[tuple[int, Tensor]]:
        """Yield every class of the batch within range, with the rows that carry it; waits for the device once."""
        assert batch.labels is not None
        assert self.classes is not None
        labels = batch.labels.cpu()
        for label in sorted(set(labels.tolist())):
            if 0 <= label < self.classes:
                yield label, (labels == label).nonzero()[:, 0].to(batch.device, non_blocking=True)

    def _take(self, entry: Entry | None, batch: Activations, *, donate: bool) -> Entry:
        entry = entry or _nothing(batch.layout, self.rule)
        return tuple(self._step(group, stack, donate=donate) for group, stack in zip(entry, batch.stacks, strict=True))

    def _step(self, group: LayerCovariance, stack: Stack, *, donate: bool) -> LayerCovariance:
        if group.spread is None:
            return LayerCovariance(group.moments.absorb(stack, donate=donate), None)
        return LayerCovariance(*absorb_if_larger(group.moments, group.spread, stack, donate=donate))


def _nothing(layout: Layout, rule: str) -> Entry:
    """Return the covariances of no input. Only the growing rule compares at every batch and so carries them along."""
    carried = rule == "growing"
    return tuple(LayerCovariance(m, torch.zeros_like(m.count) if carried else None) for m in empty_moments(layout))


def _has_empty_layers(entry: Entry) -> bool:
    """Return whether some layer would take its first input whatever it gains."""
    return any(bool((group.moments.count == 0).any()) for group in entry)


def _spread(group: LayerCovariance) -> Tensor:
    return covariance_norm(group.moments) if group.spread is None else group.spread


def _merge_entries(
    a: Entry | None, b: Entry | None, merge: Callable[[LayerCovariance, LayerCovariance], LayerCovariance]
) -> Entry | None:
    if a is None or b is None:
        return b if a is None else a
    return tuple(merge(x, y) for x, y in zip(a, b, strict=True))


def _merge_in_place(a: LayerCovariance, b: LayerCovariance) -> LayerCovariance:
    """Overwrite the first, a layer at a time, so that no second copy of all layers exists."""
    for index in range(len(a.moments.count)):
        one = slice(index, index + 1)
        ours, theirs = (
            LayerCovariance(group.moments.layer(index), None if group.spread is None else group.spread[one])
            for group in (a, b)
        )
        merged = _merge_groups(ours, theirs)
        ours.moments.replace_by(merged.moments)
        if ours.spread is not None and merged.spread is not None:
            ours.spread.copy_(merged.spread)
    return a


def _merge_groups(a: LayerCovariance, b: LayerCovariance) -> LayerCovariance:
    union = a.moments.merge(b.moments)
    if a.spread is None or b.spread is None:
        return LayerCovariance(union, None)
    value = covariance_norm(union)
    # A layer that has seen nothing yet gives way to inputs whose spread is 0 as well: the first are always taken.
    larger = b.moments.choose(a.moments, (b.spread > a.spread) | (a.moments.count == 0))
    largest = torch.maximum(a.spread, b.spread)
    taken = value > largest
    return LayerCovariance(union.choose(larger, taken), torch.maximum(value, largest))
