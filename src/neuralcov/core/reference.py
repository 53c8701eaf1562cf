"""What one pass over the training data leaves behind, shared by all criteria that learn from it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CalibrationError
from neuralcov.core.folds import Folds
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.moments import Moments, absorb_all, empty_moments
from neuralcov.core.paths import Paths
from neuralcov.core.ranges import Ranges
from neuralcov.core.records import Record, fingerprint, move
from neuralcov.core.sample import Sample
from neuralcov.core.traces import Traces

ACCUMULATORS = ("ranges", "moments", "sample", "traces", "paths", "folds")


@dataclass(frozen=True, eq=False)
class Reference(Record):
    """The training data as criteria see it: only the accumulators that some criterion learns from.

    ``seen`` counts the inputs that take part, ``left_out`` those with NaN or infinite outputs. ``held_out`` are the
    moments of training inputs kept apart, against which LVC's relative value is taken, and ``held_out_sample`` some of
    these inputs; ``None`` where none were. ``folds`` are those of the held-out inputs, or of the training inputs where
    none were held out.
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    seen: int = 0
    left_out: int = 0
    ranges: Ranges | None = None
    moments: tuple[Moments, ...] | None = None
    sample: Sample | None = None
    traces: Traces | None = None
    paths: tuple[Paths, ...] | None = None
    held_out: tuple[Moments, ...] | None = None
    held_out_sample: Sample | None = None
    folds: tuple[Folds, ...] | None = None

    @classmethod
    @ordinary_tensors
    def empty(cls, layout: Layout, criteria: Sequence[Criterion[Any]]) -> Reference:
        """A reference with the accumulators that some criterion learns from, none of which has seen anything."""
        learns: Set[str] = frozenset().union(*(criterion.learns for criterion in criteria))
        unknown = sorted(name for name in learns if _kind(name) not in ACCUMULATORS)
        if unknown:
            raise CalibrationError(
                f"nothing is called {unknown[0]!r} to learn from; there are {', '.join(ACCUMULATORS)}"
            )
        return cls(
            names=tuple(layout),
            widths=tuple(layout.widths.values()),
            ranges=Ranges.empty(layout) if "ranges" in learns else None,
            moments=empty_moments(layout) if "moments" in learns else None,
            sample=Sample.empty(layout) if "sample" in learns else None,
            traces=_empty_traces(layout, criteria) if "traces" in learns else None,
            paths=tuple(Paths.empty(name, layout) for name in sorted(learns) if _kind(name) == "paths") or None,
            folds=tuple(Folds.empty(name, layout) for name in sorted(learns) if _kind(name) == "folds") or None,
        )

    def find(self, name: str) -> Any:
        """The accumulator that a criterion ``learns`` by this name, or ``None``."""
        if _kind(name) in ("paths", "folds"):
            return next((found for found in getattr(self, _kind(name)) or () if found.name == name), None)
        return getattr(self, name)

    def layout(self, device: torch.device | str = "cpu") -> Layout:
        """The layers this was learnt on."""
        return Layout(dict(zip(self.names, self.widths, strict=True)), device)

    @ordinary_tensors
    def observe(self, batch: Activations) -> Reference:
        """The reference after a batch. Overwrites this one, which calibration alone holds."""
        return replace(
            self,
            seen=self.seen + batch.size,
            ranges=None if self.ranges is None else self.ranges.observe(batch),
            moments=None if self.moments is None else absorb_all(self.moments, batch, donate=True),
            sample=None if self.sample is None else self.sample.observe(batch),
            traces=None if self.traces is None else self.traces.observe(batch),
            paths=None if self.paths is None else tuple(paths.observe(batch) for paths in self.paths),
            folds=None if self.folds is None else tuple(folds.observe(batch) for folds in self.folds),
        )

    @ordinary_tensors
    def finished(self, *, left_out: int = 0) -> Reference:
        """The reference after the last batch, of whose inputs some were left out."""
        if left_out == self.seen:
            raise CalibrationError(f"calibration saw no input whose outputs are finite, among {left_out}")
        return replace(
            self,
            seen=self.seen - left_out,
            left_out=left_out,
            traces=None if self.traces is None else self.traces.finished(),
            paths=None if self.paths is None else tuple(paths.finished() for paths in self.paths),
        )

    def to(self, device: torch.device | str) -> Reference:
        """The same reference on another device, traces as far as their budget goes."""
        traces = None if self.traces is None else self.traces.to(device)
        return replace(move(replace(self, traces=None), device), traces=traces)

    @ordinary_tensors
    def hold_out(self, batch: Activations) -> Reference:
        """The reference with a batch of held-out training inputs taken in."""
        held_out, sample, folds = self.held_out, self.held_out_sample, self.folds
        if held_out is None:
            held_out = empty_moments(batch.layout)
            sample = None if self.sample is None else Sample.empty(batch.layout)
            # Folds of the training data serve only where nothing is held out.
            folds = None if folds is None else tuple(Folds.empty(some.name, batch.layout) for some in folds)
        return replace(
            self,
            held_out=absorb_all(held_out, batch, donate=True),
            held_out_sample=None if sample is None else sample.observe(batch),
            folds=None if folds is None else tuple(some.observe(batch) for some in folds),
        )

    def identity(self, learns: Set[str]) -> str:
        """SHA-256 of what a criterion that ``learns`` these accumulators was taught."""
        taught = (self.find(name) for kind in ACCUMULATORS for name in sorted(learns) if _kind(name) == kind)
        parts = tuple(part for part in taught if part is not None)
        held_out: Any = self.held_out if "moments" in learns else None
        if held_out is not None and self.held_out_sample is not None and "sample" in learns:
            held_out = (held_out, self.held_out_sample)
        return fingerprint((self.names, self.widths, parts, held_out))


def _empty_traces(layout: Layout, criteria: Sequence[Criterion[Any]]) -> Traces:
    """A store for all layers that some criterion traces, with the largest memory any of them allows."""
    tracing = [criterion for criterion in criteria if "traces" in criterion.learns]
    wanted = {name for criterion in tracing for name in criterion.traced(layout)}
    budget = max(criterion.trace_memory for criterion in tracing)
    sets = [criterion.traced(layout) for criterion in tracing]
    return Traces.empty([name for name in layout if name in wanted], budget, layout.device, sets)


def _kind(name: str) -> str:
    """What kind of accumulator a name stands for: ``paths`` of ``paths(0.7)``."""
    return name.partition("(")[0]
