"""Critical decision paths: the neurons that carry an input's relevance, and those of the training data.

A path depends on ``alpha``, so calibration is told the alphas: a criterion ``learns`` from ``Paths(0.7)``. An
input then takes one bit per neuron, 166 MB for 50,000 inputs of a network of 26,570 neurons; its relevance, from
which any alpha's path would follow, takes thirty-two times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.cost import Workload
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.kernels.hashing import pack, unpack, words_for
from neuralcov.statistics.statistic import Statistic


def critical_neurons(relevance: Float[Tensor, "batch width"], alpha: float) -> Bool[Tensor, "batch width"]:
    """Return the fewest neurons of each input, by falling relevance, that reach alpha of its positive relevance.

    Equal neurons come in by rising index; without positive relevance the path is empty. Sums are float64, taken
    in the order of the prefix.

    >>> critical_neurons(torch.tensor([[0.1, 0.5, -2.0, 0.5], [-1.0, 0.0, -1.0, 0.0]]), 0.7)
    tensor([[False,  True, False,  True],
            [False, False, False, False]])
    """
    falling, order = relevance.double().clamp(min=0).sort(dim=1, descending=True, stable=True)
    reached = falling.cumsum(1)
    before = torch.cat([torch.zeros_like(reached[:, :1]), reached[:, :-1]], dim=1)
    within = (falling > 0) & (before < alpha * reached[:, -1:])
    return torch.zeros_like(within).scatter_(1, order, within)


def critical_paths(batch: Activations, alpha: float) -> Bool[Tensor, "batch neurons"]:
    """Return the paths of a batch's inputs, one bit per neuron, layer after layer in execution order.

    A layer an input lacks (a step past its end) has no part in its path, and neither has an input that is not
    finite.
    """

    def compute() -> Tensor:
        assert batch.relevance is not None
        finite = finite_with_relevance(batch)
        parts = []
        for name in batch.layers:
            values = batch.relevance[name].to(batch.device)
            there = batch.present[name].to(batch.device) & finite if name in batch.present else finite
            parts.append(critical_neurons(values.masked_fill(~there[:, None], 0), alpha))
        return torch.cat(parts, dim=1)

    return batch.shared(("critical paths", alpha), compute)


def finite_with_relevance(batch: Activations) -> Bool[Tensor, "batch"]:
    """Return whether every output of an input and all its relevance are finite numbers."""

    def compute() -> Tensor:
        assert batch.relevance is not None
        finite = batch.finite
        for name in batch.layers:
            finite = finite & batch.relevance[name].to(batch.device).isfinite().all(1)
        return finite

    return batch.shared("finite with relevance", compute)


@dataclass(frozen=True, eq=False)
class PathRows(Record, name="path-rows"):
    """Some correctly classified training inputs.

    Args:
        classes: of each.
        numbers: of each among all training inputs with finite outputs, as traces count them.
        words: their paths, packed.
    """

    classes: Int[Tensor, "rows"]
    numbers: Int[Tensor, "rows"]
    words: Int[Tensor, "rows words"]

    def __len__(self) -> int:
        return len(self.classes)

    def bits(self, rows: slice | Tensor, neurons: int) -> Bool[Tensor, "_ neurons"]:
        """Return some of the paths, one bit per neuron."""
        return unpack(self.words[rows], neurons)


@dataclass(frozen=True, eq=False)
class TrainingPaths(Record, name="paths", free=["finite"]):
    """The paths of correctly classified training inputs under one alpha, in the order they came.

    ``classes`` are all classes among the labels, rising, whether or not any input of them was classified
    correctly; ``finite`` is how many inputs had finite outputs. ``parts`` are the inputs, joined as they grow.
    """

    name: str
    classes: Int[Tensor, "classes"]
    finite: int
    parts: tuple[PathRows, ...]

    @classmethod
    def empty(cls, name: str, layout: Layout) -> TrainingPaths:
        """Return the paths of no input, under a ``name`` that says alpha: ``paths(0.7)``."""
        nothing = torch.zeros(0, dtype=torch.int64, device=layout.device)
        return cls(name, nothing, 0, (PathRows(nothing, nothing, nothing.new_zeros(0, words_for(layout.neurons))),))

    @property
    def alpha(self) -> float:
        """Return the share of relevance a path must reach."""
        return float(self.name.removeprefix("paths(").removesuffix(")"))

    @property
    def rows(self) -> PathRows:
        """Return all inputs in one."""
        return _joined(self.parts)

    def finished(self) -> TrainingPaths:
        """Join all inputs in one part, so that it does not matter in what batches they came."""
        return replace(self, parts=(self.rows,))

    def observe(self, batch: Activations) -> TrainingPaths:
        """Add the paths of a batch."""
        if batch.labels is None:
            raise CalibrationError(
                "paths are learnt from correctly classified inputs: calibrate with labels, "
                "for example with a loader of (inputs, labels)"
            )
        if batch.predictions is None or batch.relevance is None:
            lacking = "predictions" if batch.predictions is None else "relevance"
            raise CalibrationError(f"paths need {lacking}: pass Activations(..., {lacking}=...) or calibrate a model")
        finite = finite_with_relevance(batch)
        labels = batch.labels.to(batch.device, torch.int64)
        correct = (finite & (labels == batch.predictions.to(batch.device))).nonzero()[:, 0]
        numbers = self.finite + batch.finite.cumsum(0)[correct] - 1
        rows = PathRows(labels[correct], numbers, pack(critical_paths(batch, self.alpha)[correct]))
        return TrainingPaths(
            self.name,
            torch.unique(torch.cat([self.classes, labels[finite]])),
            self.finite + int(batch.finite.sum()),
            _appended(self.parts, rows),
        )


@dataclass(frozen=True)
class Paths(Statistic[TrainingPaths], name="paths"):
    """Gather the critical paths of correctly classified inputs.

    >>> Paths(alpha=0.7).label
    'paths(0.7)'
    """

    alpha: float

    @property
    @override
    def label(self) -> str:
        return f"{self.declared}({float(self.alpha)!r})"

    @override
    def init(self, layout: Layout) -> TrainingPaths:
        return TrainingPaths.empty(self.label, layout)

    @override
    def observe(self, gathered: TrainingPaths, batch: Activations) -> TrainingPaths:
        return gathered.observe(batch)

    @override
    def cost(self, layout: Layout, workload: Workload) -> int:
        # A bit for each neuron, the class and the number of each input.
        return workload.training_inputs * (8 * words_for(layout.neurons) + 16)

    @override
    def finish(self, gathered: TrainingPaths) -> TrainingPaths:
        return gathered.finished()

    @override
    def template(self, layout: Layout) -> tuple[TrainingPaths, TrainingPaths]:
        form = self.init(layout)
        return form, replace(form, parts=())


def _appended(parts: tuple[PathRows, ...], rows: PathRows) -> tuple[PathRows, ...]:
    """Append a part, and join it to the one before unless that is much larger, so that few are left."""
    while parts and len(parts[-1]) <= 2 * len(rows):
        parts, rows = parts[:-1], _joined((parts[-1], rows))
    return (*parts, rows) if len(rows) or not parts else parts


def _joined(parts: Sequence[PathRows]) -> PathRows:
    if len(parts) == 1:
        return parts[0]
    return PathRows(
        torch.cat([part.classes for part in parts]),
        torch.cat([part.numbers for part in parts]),
        torch.cat([part.words for part in parts]),
    )
