"""The criteria that score inputs for a ranking, taught by a coverage's calibration or by training data.

Surprise and trust are measured on the last layer before the output, or on what the output layer is given where that is
something else; one layer keeps traces short. They are measured against a limited number of training inputs, evenly
spaced among all, which keeps the search short. Rarity is that of the kinds of all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from neuralcov.core.digests import content_keys
from neuralcov.core.errors import CalibrationError, InputError
from neuralcov.core.find_criterion import criterion_class
from neuralcov.core.shapes import Float, Int
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.running import Run
from neuralcov.rank.given import OutputListener, last_before_output
from neuralcov.rank.trust import ClassNeighbours
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.traces import TraceStore
from neuralcov.tap.inputs import Lengths

RARITY, KINDS, TRUST = "rarity", "kinds", "trust"
SURPRISES = ("dsc", "lsc", "mdsc")
MOST_TRACES = 20_000


class KindCounter(Protocol):
    """A criterion that knows how often training data showed an input's kinds."""

    def rarity(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return how rare in training data each input's kinds are."""

    def kinds(self, batch: Activations) -> Int[Tensor, "batch layers 2"]:
        """Return the key of each input's kind in each layer."""


@dataclass(frozen=True, eq=False)
class Scorers:
    """Score the inputs of a batch.

    Args:
        surprises: by name, criteria whose score is a surprise.
        neighbours: what tells how far decisions can be trusted, where somebody asked for it.
        counter: what counts kinds, where somebody asked for rarity or kinds.
        layer: where surprise is measured.
        traces: how many training inputs it is measured against.
        calibration: what they were taught by; ``None`` if a loaded state told all.
    """

    surprises: dict[str, Criterion[Any]]
    neighbours: ClassNeighbours | None
    counter: KindCounter | None
    layer: str
    traces: int
    calibration: Calibration | None

    def identity(self) -> dict[str, Any]:
        """Return plain data that differ where other scores would come out."""
        criteria = [*self.surprises.values(), *([] if self.counter is None else [cast(Criterion[Any], self.counter)])]
        learns = {criterion.name: criterion.learns for criterion in criteria}
        known = self.calibration
        ids = {name: None if known is None else known.identity(learnt) for name, learnt in learns.items()}
        return {"layer": self.layer, "traces": self.traces, "learnt": ids}

    def score(self, name: str, batch: Activations) -> Float[Tensor, "batch"]:
        """Return a score of each input, the larger the stranger, or the smaller for trust; NaN where there is none."""
        if name == TRUST:
            assert self.neighbours is not None
            return self.neighbours.score(batch)
        if name == RARITY:
            assert self.counter is not None
            return self.counter.rarity(batch)
        found = self.surprises[name].score(batch)
        assert found is not None
        return found

    def kinds(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Return a 64-bit key of each input's kinds in all layers together: near duplicates share it."""
        assert self.counter is not None
        keys = content_keys([self.counter.kinds(batch).contiguous()])
        # What is not finite has no kinds, and is like nothing but itself.
        return torch.where(batch.finite, keys[:, 0], batch.content_keys[:, 0].to(keys.device))


@dataclass(frozen=True)
class ScorerPlan:
    """Say which scores are wanted, and where surprise is measured.

    Args:
        names: of ``trust``, ``dsc``, ``lsc``, ``mdsc``, ``rarity`` and ``kinds``.
        by_class: whether surprise is among training inputs of the predicted class; otherwise among all.
        layer: where; by default the last layer before the output.
        most_traces: training inputs to measure surprise against.
    """

    names: tuple[str, ...]
    by_class: bool = True
    layer: str | None = None
    most_traces: int = MOST_TRACES

    def teach(self, coverage: Coverage, batch: Activations, output: Any) -> Scorers:
        """Teach the scorers by the calibration of a coverage; ``batch`` and ``output`` are any of its model."""
        layer = self._layer(batch, output)
        kind = _class("lcc")
        # One with settings of its own, or one whose table a state file held.
        own = next((each for each in coverage.criteria if isinstance(each, kind) and each.learnt is not None), None)
        return self._taught(coverage.calibration, layer, own)

    def empty(self, batch: Activations, output: Any) -> tuple[Calibration, str]:
        """Return a calibration that has seen nothing and holds what is needed, and the layer of surprise."""
        layer = self._layer(batch, output)
        return Calibration.empty(batch.layout, list(self._criteria(layer).values())), layer

    def teach_from(self, calibration: Calibration, layer: str) -> Scorers:
        """Teach the scorers by a calibration of their own."""
        return self._taught(calibration, layer, None)

    def _criteria(self, layer: str) -> dict[str, Criterion[Any]]:
        """Return the criteria, untaught, by the name of their score; the one that counts kinds under its own."""
        by = "predicted" if self.by_class else None
        # Trust needs the traces that DSC gathers.
        wanted = {"dsc" if name == TRUST else name for name in self.names}
        found = {name: _class(name)(layers=(layer,), by=by) for name in SURPRISES if name in wanted}
        if {RARITY, KINDS} & set(self.names):
            found["lcc"] = _class("lcc")()
        return found

    def _taught(self, calibration: Calibration | None, layer: str, own: Criterion[Any] | None) -> Scorers:
        wanted = self._criteria(layer)
        taught: dict[str, Criterion[Any]] = {}
        neighbours: ClassNeighbours | None = None
        traces = 0
        for name, criterion in wanted.items():
            if name == "lcc" and own is not None:
                taught[name] = own
                continue
            (statistic,) = criterion.learns
            gathered = None if calibration is None else calibration.find(statistic)
            of_traces = isinstance(gathered, TraceStore)
            if calibration is None or gathered is None or (of_traces and layer not in gathered.names):
                names = " and ".join(f"nc.{each.upper()}()" for each in wanted)
                raise CalibrationError(
                    f"this needs training data that {name.upper()} has learnt from: calibrate a coverage with {names} "
                    "among its criteria, or give training= (--calibrate on the command line)"
                )
            if of_traces:
                sample = gathered.sample(layer, calibration.layout().widths, self.most_traces)
                traces = len(sample)
                if name == "dsc" and TRUST in self.names:
                    neighbours = ClassNeighbours.of(sample)
                if name not in self.names:
                    continue
                taught[name] = criterion.calibrate(replace(calibration, of_training={statistic: sample}))
            else:
                taught[name] = criterion.calibrate(calibration)
        counter = cast(KindCounter | None, taught.pop("lcc", None))
        return Scorers(taught, neighbours, counter, layer, traces, calibration)

    def _layer(self, batch: Activations, output: Any) -> str:
        if self.layer is None:
            return last_before_output(batch, output)
        if self.layer not in batch.layers:
            raise InputError(f"layer={self.layer!r} is none of this coverage, which has {', '.join(batch.layers)}")
        return self.layer


def score_name(name: str) -> str:
    """Return what people call a score: criteria by their names.

    >>> score_name("dsc"), score_name("trust")
    ('DSC', 'trust')
    """
    return name.upper() if name in SURPRISES else name


def teach_by(
    coverage: Coverage,
    training: Iterable[Any],
    choose: Callable[[Activations, Any], ScorerPlan],
    listener: OutputListener,
    *,
    told: Callable[[Run], Run],
    lengths: Lengths | None,
    progress: bool | None,
) -> Scorers:
    """Teach scorers by training data, in one pass of the model; ``choose`` says which, given the first batch.

    What the listener hears of the output layer's input becomes one layer more; ``told`` leaves out what may not count.
    """
    plan: ScorerPlan | None = None
    calibration: Calibration | None = None
    layer, excluded = "", 0
    with listener.listening():
        for run in map(told, coverage.runs(training, lengths=lengths, progress=progress, title="calibrating")):
            batch = listener.joined(run)
            if plan is None or calibration is None:
                plan = choose(batch, run.output)
                calibration, layer = plan.empty(batch, run.output)
            calibration = calibration.observe(batch)
            excluded += batch.size - int(batch.finite.sum())
    if plan is None or calibration is None:
        raise CalibrationError("training= gave no batch: there is nothing to learn from")
    return plan.teach_from(calibration.finished(excluded=excluded), layer)


def _class(name: str) -> Any:
    """Return a criterion's class by its name; that of an installed package would have another."""
    found = criterion_class(name)
    assert found is not None, f"no criterion {name} is registered"
    return found


def as_column(numbers: Tensor, kind: str) -> np.ndarray:
    """Return numbers of a batch as an array on the host."""
    return numbers.detach().cpu().numpy().astype(kind)
