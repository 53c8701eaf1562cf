"""Surprise coverage: how many different degrees of surprise a suite shows, and what its criteria share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.criterion import State
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.distinct import ABSENT, DistinctCriterion
from neuralcov.criteria.older_sets import Buckets, bucket_keys
from neuralcov.criteria.surprise.class_traces import ClassTraces
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.statistic import Statistic
from neuralcov.statistics.traces import Traces, TraceStore

# Of whose numbers float64 tells every one from the next.
_MOST_BUCKETS = 2.0**53


@dataclass(frozen=True, eq=False)
class SurpriseCriterion(DistinctCriterion, base=True):
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
        traces: if given, how many training traces to compare with at most, spread evenly over the training data.
        memory: what training traces may take on the device; beyond it they are streamed from disk, where they take
            twice their size.
    """

    # Every bucket has a first word of its own.
    hashed = True

    bucket: float = 10
    by: str | None = field(default="predicted", kw_only=True)
    layers: str | tuple[str, ...] | None = field(default=None, kw_only=True)
    min_variance: float = field(default=1e-5, kw_only=True)
    upper: float | None = field(default=None, kw_only=True)
    traces: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checks.number(self, "bucket", above=0)
        checks.one_of(self, "by", "predicted", "label", None)
        checks.number(self, "min_variance", at_least=0)
        if self.upper is not None:
            checks.number(self, "upper", above=0)
            if not self.upper < _MOST_BUCKETS * self.bucket:
                raise checks.argument_error(self, "upper", "at most 2⁵³ buckets")
        if self.traces is not None:
            checks.whole_number(self, "traces", at_least=2)
        if not (self.layers is None or isinstance(self.layers, (str, tuple))):
            raise checks.argument_error(self, "layers", "globs joined by |, a tuple of names, or None")
        super().__post_init__()

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"predicted": {"predictions"}, "label": {"labels"}, None: set[str]()}[self.by])

    @property
    @override
    def learns(self) -> frozenset[Statistic[TraceStore]]:
        return frozenset({self._traces})

    @property
    def _traces(self) -> Traces:
        return Traces(self.layers, self.memory)

    @override
    def calibrate(self, calibration: Calibration) -> Self:
        layout = calibration.layout()
        names = self._traces.names(layout, self.name)
        traces = calibration[self._traces].of_layers(names).thinned(self.traces)
        if not len(traces):
            raise CalibrationError(f"{self.name}: calibration saw no input whose outputs are finite")
        view = ClassTraces(traces, names, [layout.widths[n] for n in traces.names], self.by, self.min_variance)
        return replace(self, learnt=self.scorer(view))

    @abstractmethod
    def scorer(self, view: ClassTraces) -> Scorer:
        """Return what scores inputs by these training traces."""

    @override
    def for_state_file(self) -> None:
        """Return nothing: traces stay in the saved calibration."""

    @override
    def kinds(self, batch: Activations) -> Int[Tensor, "batch 1 2"]:
        # Adding zero makes -0.0 into +0.0, the same bucket.
        buckets = (self.score(batch) / self.bucket).floor() + 0.0
        keys = bucket_keys(buckets).masked_fill(~buckets.isfinite()[:, None], ABSENT)
        return keys[:, None]

    @override
    def weights(self, keys: Int[Tensor, "n 2"], column: int) -> Float[Tensor, "n"] | None:
        if self._end is None:
            return None
        buckets = keys[:, 0].contiguous().view(torch.float64)
        return ((buckets >= 0) & (buckets < self._end)).double()

    @override
    def reduce(self, sums: Float[Tensor, "*rows 1"]) -> Float[Tensor, "*rows"]:
        return super().reduce(sums) / (self._end or 1)

    @override
    def finite(self, batch: Activations) -> Bool[Tensor, "batch"]:
        scorer: Scorer = self.require_learnt()
        return batch.only(scorer.view.names).finite

    @override
    def older_forms(self, layout: Layout) -> tuple[State, ...]:
        return (Buckets.empty(layout),)

    @override
    def upgrade(self, learnt: Any, state: Any, layout: Layout) -> tuple[Any, Any]:
        return learnt, state.as_distinct() if isinstance(state, Buckets) else state

    @override
    def score(self, batch: Activations) -> Float[Tensor, "batch"]:
        scorer: Scorer = self.require_learnt()
        finite = self.finite(batch)
        surprises = batch.shared(("surprise", id(scorer)), lambda: scorer.surprises(batch))
        return surprises.masked_fill(~(finite & surprises.isfinite()), torch.nan)

    @property
    def _end(self) -> int | None:
        """Return the first bucket that does not count any more, which is how many do; ``None`` if all do."""
        if self.upper is None:
            return None
        # 1e-9 of a bucket may be rounding: 0.3 / 0.1 is a little below 3, 2 / 0.1 is 20.
        return max(1, math.ceil(self.upper / self.bucket - 1e-9))


class Scorer(ABC):
    """A criterion taught by training traces."""

    def __init__(self, view: ClassTraces) -> None:
        self.view = view

    @abstractmethod
    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return the surprise of each input; NaN where its class has no training traces or it has no place."""

    def classes_and_traces(self, batch: Activations) -> tuple[Int[Tensor, "batch"], Float[Tensor, "batch width"]]:
        """Return the class of each input, on the CPU, and its trace."""
        # What is not finite is excluded in the end, and must not spoil the search for others until then.
        return self.view.conditions(batch), self.view.of_batch(batch).nan_to_num(0, 0, 0)

    def by_class(self, batch: Activations) -> Iterator[tuple[int, Int[Tensor, "some"], Float[Tensor, "some width"]]]:
        """Yield the classes of a batch that training knew, with the rows of their inputs and their traces.

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


class ClassScorer(Scorer):
    """One whose surprise depends on the training traces of the input's class alone."""

    @override
    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        surprises = torch.full((batch.size,), torch.nan, dtype=torch.float64, device=batch.device)
        for label, rows, traces in self.by_class(batch):
            surprises[rows] = self.within_class(label, traces)
        return surprises

    @abstractmethod
    def within_class(self, label: int, traces: Float[Tensor, "some width"]) -> Float[Tensor, "some"]:
        """Return the surprise of traces among those of one class."""
