"""Surprise coverage: how many different degrees of surprise a suite shows, and what its criteria share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.arguments import match_globs, without_match
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID, exclude_placeless, no_counts
from neuralcov.core.criterion import ALL_PROMISES, Criterion, State, resource, widths_of
from neuralcov.core.errors import CalibrationError, LayerError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import parse_bytes
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.distinct import BucketSet
from neuralcov.criteria.surprise.class_traces import TraceView
from neuralcov.statistics.calibration import Reference


@dataclass(frozen=True, eq=False)
class Buckets(State, name="buckets"):
    """The numbers of the buckets covered."""

    covered: BucketSet


@dataclass(frozen=True, eq=False)
class SurpriseCriterion(Criterion[Buckets]):
    """Base of criteria that put a number on how surprising an input is, given training traces.

    The trace of an input is its chosen layers' outputs side by side, without the neurons that hardly vary
    over the training data. Coverage is the number of distinct buckets ``floor(surprise / bucket)``.

    Args:
        bucket: width of a bucket.
        by: compare within the class the model ``"predicted"`` (training traces grouped by their own predicted
            class), within the true ``"label"``, or with all training traces (``None``).
        layers: globs joined by ``|``, or names, of the layers that make a trace; all by default.
        min_variance: neurons whose variance over all training data is below it are left out of traces.
        upper: if given, the value is the share covered of the buckets up to there: of 0 … n − 1, with
            n = max(1, ⌈upper / bucket − 1e-9⌉).
        memory: what training traces may take on the device; beyond it they are streamed from disk, where they take
            twice their size.
    """

    bucket: float = 10
    by: str | None = field(default="predicted", kw_only=True)
    layers: str | tuple[str, ...] | None = field(default=None, kw_only=True)
    min_variance: float = field(default=1e-5, kw_only=True)
    upper: float | None = field(default=None, kw_only=True)
    memory: str | int = resource("16GiB")

    def __post_init__(self) -> None:
        checks.number(self, "bucket", above=0)
        checks.one_of(self, "by", "predicted", "label", None)
        checks.number(self, "min_variance", at_least=0)
        if self.upper is not None:
            checks.number(self, "upper", above=0)
        if not (self.layers is None or isinstance(self.layers, (str, tuple))):
            raise checks.argument_error(self, "layers", "globs joined by |, a tuple of names, or None")
        parse_bytes(self.memory)

    @property
    def needs(self) -> frozenset[str]:
        """Predictions or labels, by what inputs are compared within."""
        return frozenset({"predicted": {"predictions"}, "label": {"labels"}, None: set[str]()}[self.by])

    @property
    def learns(self) -> frozenset[str]:
        """Whole training traces."""
        return frozenset({"traces"})

    @property
    def promises(self) -> frozenset[str]:
        """A set of buckets keeps them all."""
        return ALL_PROMISES

    @property
    def trace_memory(self) -> int:
        """The memory allowed, in bytes."""
        return parse_bytes(self.memory)

    def traced(self, layout: Layout) -> tuple[str, ...]:
        """The chosen layers."""
        if self.layers is None:
            return tuple(layout)
        if isinstance(self.layers, tuple):
            chosen = tuple(name for name in layout if name in self.layers)
            missing = [name for name in self.layers if name not in layout]
        else:
            chosen, missing = tuple(match_globs(layout, self.layers)), without_match(layout, self.layers)
        if missing or not chosen:
            raise LayerError(
                f"{self.name}: layers={self.layers!r} names {missing[0] if missing else 'no layer'!r} "
                f"of this coverage, which has {', '.join(layout)}"
            )
        return chosen

    def calibrate(self, reference: Reference) -> Self:
        """Learn from the training traces."""
        assert reference.traces is not None
        known = dict(zip(reference.names, reference.widths, strict=True))
        names = self.traced(Layout(known))
        traces = reference.traces.of_layers(names)
        if not len(traces):
            raise CalibrationError(f"{self.name}: calibration saw no input whose outputs are finite")
        view = TraceView(traces, names, [known[n] for n in traces.names], self.by, self.min_variance)
        return replace(self, fitted=self.fit(view))

    @abstractmethod
    def fit(self, view: TraceView) -> Fit:
        """What the criterion derives from training traces."""

    def portable(self) -> None:
        """Nothing: traces stay in the saved calibration."""

    def init(self, layout: Layout) -> Buckets:
        """No bucket covered."""
        return Buckets(no_counts(layout), widths_of(layout), BucketSet.empty(layout.device))

    def observe(self, state: Buckets, batch: Activations, *, donate: bool = False) -> Buckets:
        """Cover the buckets the inputs fall into; those without a place are left out and counted."""
        buckets, counts = self._buckets(batch)
        return Buckets(state.counts + counts, state.widths, state.covered.add(buckets, buckets.isfinite()))

    def merge(self, a: Buckets, b: Buckets) -> Buckets:
        """Buckets of either."""
        return Buckets(a.counts + b.counts, a.widths, a.covered.union(b.covered))

    def value(self, state: Buckets) -> Float[Tensor, ""]:
        """Number of buckets, or the share of those up to ``upper``."""
        return self._within(state.covered.numbers).sum().double() / (self._end or 1)

    def gain(self, state: Buckets, batch: Activations) -> Float[Tensor, "batch"]:
        """What each input's bucket would add."""
        buckets, _ = self._buckets(batch)
        fresh = buckets.isfinite() & ~state.covered.contains(buckets)
        return (fresh & self._within(buckets)).double() / (self._end or 1)

    def admit(
        self, state: Buckets, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], Buckets]:
        """Take, in order, inputs whose bucket adds to the value and is new to the inputs before them as well.

        A negative limit takes all that have a bucket, since none lowers the value. Inputs left out are counted.
        """
        buckets, counts = self._buckets(batch)
        if min_gain < 0:
            taken = buckets.isfinite()
        else:
            taken = state.covered.firsts(buckets, self._within(buckets) & (min_gain < 1 / (self._end or 1)))
        counts[VALID] = taken.sum()
        # Where looking is free, what is as it was stays the same object.
        known = taken.device.type == "cpu" and not bool(taken.any())
        covered = state.covered if known else state.covered.add(buckets, taken)
        return taken, Buckets(state.counts + counts, state.widths, covered)

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Tell why each input is left out: ``NOT_FINITE`` or, without a bucket, ``NOT_PLACEABLE``; else ``VALID``."""
        buckets, _ = self._buckets(batch)
        unplaced = torch.where(buckets.isfinite(), VALID, NOT_PLACEABLE)
        return unplaced.masked_fill(~batch.only(self._names(batch)).finite, NOT_FINITE)

    def score(self, batch: Activations) -> Float[Tensor, "batch"]:
        """The surprise of each input; NaN for those left out."""
        fit: Fit = self.require_fitted()
        finite = batch.only(self._names(batch)).finite
        surprises = batch.shared(("surprise", id(fit)), lambda: fit.surprises(batch))
        return surprises.masked_fill(~(finite & surprises.isfinite()), torch.nan)

    def _names(self, batch: Activations) -> tuple[str, ...]:
        fit: Fit = self.require_fitted()
        return fit.view.names

    def _buckets(self, batch: Activations) -> tuple[Float[Tensor, "batch"], Int[Tensor, "3"]]:
        """The bucket of each input, not finite for those without, and how many have one or why not."""
        # Adding zero makes -0.0 into +0.0, the same bucket.
        buckets = (self.score(batch) / self.bucket).floor() + 0.0
        seen = batch.only(self._names(batch))
        return buckets, exclude_placeless(seen.input_counts.clone(), (seen.finite & ~buckets.isfinite()).sum())

    @property
    def _end(self) -> int | None:
        """The first bucket that does not count any more, which is how many do; ``None`` if all do."""
        if self.upper is None:
            return None
        # 1e-9 of a bucket may be rounding: 0.3 / 0.1 is a little below 3, 2 / 0.1 is 20.
        return max(1, math.ceil(self.upper / self.bucket - 1e-9))

    def _within(self, buckets: Tensor) -> Bool[Tensor, "_"]:
        """Which buckets count in the value; those that are not finite do not."""
        if self._end is None:
            return buckets.isfinite()
        return (buckets >= 0) & (buckets < self._end)


class Fit(ABC):
    """A criterion taught by training traces."""

    def __init__(self, view: TraceView) -> None:
        self.view = view

    @abstractmethod
    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        """The surprise of each input; NaN where its class has no training traces or it has no place."""

    def classes_and_traces(self, batch: Activations) -> tuple[Int[Tensor, "batch"], Float[Tensor, "batch width"]]:
        """The class of each input, on the CPU, and its trace."""
        # What is not finite is left out in the end, and must not spoil the search for others until then.
        return self.view.conditions(batch), self.view.of_batch(batch).nan_to_num(0, 0, 0)

    def by_class(self, batch: Activations) -> Iterator[tuple[int, Int[Tensor, "some"], Float[Tensor, "some width"]]]:
        """The classes of a batch that training knew, with the rows of their inputs and their traces.

        Waits for the device once, for the classes.
        """
        classes, traces = self.classes_and_traces(batch)
        order = classes.argsort(stable=True)
        labels, counts = torch.unique_consecutive(classes[order], return_counts=True)
        # Copied to the device once for all classes, of which there may be a thousand.
        parts = torch.split(order.to(batch.device, non_blocking=True), counts.tolist())
        for label, rows in zip(labels.tolist(), parts, strict=True):
            if label in self.view.members:
                yield label, rows, traces[rows]


class ClassFit(Fit):
    """One whose surprise depends on the training traces of the input's class alone."""

    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        """The surprise of each input, class by class."""
        surprises = torch.full((batch.size,), torch.nan, dtype=torch.float64, device=batch.device)
        for label, rows, traces in self.by_class(batch):
            surprises[rows] = self.within_class(label, traces)
        return surprises

    @abstractmethod
    def within_class(self, label: int, traces: Float[Tensor, "some width"]) -> Float[Tensor, "some"]:
        """The surprise of traces among those of one class."""
