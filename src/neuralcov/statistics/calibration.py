"""What one pass over the training data leaves behind, shared by all criteria that learn from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.container import StoredTensor
from neuralcov.core.criterion import Criterion
from neuralcov.core.digests import tensor_digest
from neuralcov.core.errors import CalibrationError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.old_identity import old_fingerprint
from neuralcov.core.records import Record, identity_of, map_tensors, move
from neuralcov.core.templates import require_form
from neuralcov.statistics.moments import Moments, absorb_all, empty_moments
from neuralcov.statistics.ranges import Ranges
from neuralcov.statistics.traces import Traces

if TYPE_CHECKING:
    from neuralcov.criteria.lvc.folds import Folds
    from neuralcov.criteria.lvc.sample import Sample
    from neuralcov.criteria.npc.paths import Paths

ACCUMULATORS = ("ranges", "moments", "sample", "traces", "paths", "folds")
# Kinds of which there may be several, each with arguments of its own in its name.
_SEVERAL = ("paths", "folds")


@dataclass(frozen=True, eq=False)
class Reference(Record, name="calibration", free=["seen", "left_out"]):
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
        from neuralcov.criteria.lvc.folds import Folds
        from neuralcov.criteria.lvc.sample import Sample
        from neuralcov.criteria.npc.paths import Paths

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
        if _kind(name) in _SEVERAL:
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
        from neuralcov.criteria.lvc.folds import Folds
        from neuralcov.criteria.lvc.sample import Sample

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

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the tensors, by their path in this record, as far as they are known."""
        return {}

    def identity(self, learns: Set[str]) -> str:
        """SHA-256 of what a criterion that ``learns`` these accumulators was taught.

        It is that of the tensors' digests, which files keep, so that a calibration that was loaded is not read again.
        Where traces are kept, and how many of them in memory, is no part of it.
        """
        parts = {self._path(name): self.find(name) for name in _in_order(learns) if self.find(name) is not None}
        if "moments" in learns:
            parts["held_out"] = self.held_out
        if "sample" in learns and self.held_out_sample is not None:
            parts["held_out_sample"] = self.held_out_sample
        return identity_of({"names": self.names, "widths": self.widths, **parts}, self._digest)

    def old_identity(self, learns: Set[str]) -> str:
        """The SHA-256 that files of schema 1 tell a calibration by."""
        parts = tuple(self.find(name) for name in _in_order(learns) if _kind(name) != "folds")
        extra = self.held_out if "moments" in learns else None
        return old_fingerprint((self.names, self.widths, parts, extra))

    def _path(self, name: str) -> str:
        kind = _kind(name)
        if kind not in _SEVERAL:
            return name
        return f"{kind}.{[each.name for each in getattr(self, kind) or ()].index(name)}"

    def _digest(self, path: str, tensor: Tensor) -> str:
        if path not in self.digests:
            self.digests[path] = tensor_digest(tensor)
        return self.digests[path]


def _empty_traces(layout: Layout, criteria: Sequence[Criterion[Any]]) -> Traces:
    """A store for all layers that some criterion traces, with the largest memory any of them allows."""
    tracing = [criterion for criterion in criteria if "traces" in criterion.learns]
    wanted = {name for criterion in tracing for name in criterion.traced(layout)}
    budget = max(criterion.trace_memory for criterion in tracing)
    sets = [criterion.traced(layout) for criterion in tracing]
    return Traces.empty([name for name in layout if name in wanted], budget, layout.device, sets)


def _in_order(learns: Set[str]) -> list[str]:
    return [name for kind in ACCUMULATORS for name in sorted(learns) if _kind(name) == kind]


def require_reference(structure: Any, layout: Layout, tensors: Mapping[str, StoredTensor], place: str) -> None:
    """Refuse the calibration of a file whose parts do not have the form that its layers ask for."""
    from neuralcov.criteria.lvc.folds import Folds
    from neuralcov.criteria.lvc.sample import Sample
    from neuralcov.criteria.npc.paths import Paths

    fields = structure["fields"]
    moments = empty_moments(layout)
    sample = map_tensors(lambda tensor: tensor[:0], Sample.empty(layout))
    found: dict[str, Any] = {"ranges": Ranges.empty(layout), "moments": moments, "sample": sample}
    found |= {"held_out": moments, "held_out_sample": sample}
    bare = Reference(tuple(layout), tuple(layout.widths.values()))
    forms: dict[str, tuple[Any, Any]] = {name: (form, form) for name, form in found.items()}
    if _there(fields, "traces"):
        names = [item["value"] for item in fields["traces"]["fields"]["names"]]
        nothing = replace(Traces.empty(names, 0, layout.device), labels=None, predictions=None)
        forms["traces"] = Traces.template(names, layout), nothing
    if _there(fields, "paths"):
        names = [item["fields"]["name"]["value"] for item in fields["paths"]]
        paths = tuple(Paths.empty(name, layout) for name in names)
        forms["paths"] = paths, tuple(replace(some, parts=()) for some in paths)
    if _there(fields, "folds"):
        counts = [len(item["fields"]["moments"]) for item in fields["folds"]]
        folds = tuple(Folds((moments,) * count) for count in counts)
        forms["folds"] = folds, folds
    for name, (form, empty) in forms.items():
        if _there(fields, name):
            require_form(fields[name], form, empty, tensors, f"{place}.{name}")
    rest = {name: part for name, part in fields.items() if name not in forms}
    require_form({**structure, "fields": rest}, bare, bare, tensors, place)


def _there(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields and fields[name] != {"value": None}


def _kind(name: str) -> str:
    """What kind of accumulator a name stands for: ``paths`` of ``paths(0.7)``."""
    return name.partition("(")[0]
