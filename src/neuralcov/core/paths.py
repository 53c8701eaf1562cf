"""Critical decision paths: the neurons that carry an input's relevance, and those of the training data.

A path depends on ``alpha``, so calibration is told the alphas: a criterion ``learns`` from ``paths(0.7)``. An
input then takes one bit per neuron, 166 MB for 50,000 inputs of a network of 26,570 neurons; its relevance, from
which any alpha's path would follow, takes thirty-two times that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CalibrationError
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int, Shaped


def critical_neurons(relevance: Float[Tensor, "batch width"], alpha: float) -> Bool[Tensor, "batch width"]:
    """Per input the shortest prefix of neurons by falling relevance that reaches alpha of the positive relevance.

    Equal neurons come in by rising index; without positive relevance the path is empty. Sums are float64, taken
    in the order of the prefix.

    >>> critical_neurons(torch.tensor([[0.1, 0.5, -2.0, 0.5], [-1.0, 0.0, -1.0, 0.0]]), 0.7)
    tensor([[False,  True, False,  True],
            [False, False, False, False]])
    """
    falling, order = relevance.double().clamp(min=0).sort(dim=1, descending=True, stable=True)
    reached = falling.cumsum(1)
    before = torch.cat([torch.zeros_like(reached[:, :1]), reached[:, :-1]], dim=1)
    within = before < alpha * reached[:, -1:]
    return torch.zeros_like(within).scatter_(1, order, within)


def critical_paths(batch: Activations, alpha: float) -> Bool[Tensor, "batch neurons"]:
    """The paths of a batch's inputs, one bit per neuron, layer after layer in execution order.

    A layer an input lacks (a step past its end) has no part in its path, and neither has an input that is not
    finite.
    """

    def compute() -> Tensor:
        assert batch.relevance is not None
        usable = explained(batch)
        parts = []
        for name in batch.layers:
            values = batch.relevance[name].to(batch.device)
            there = batch.present[name].to(batch.device) & usable if name in batch.present else usable
            parts.append(critical_neurons(values.masked_fill(~there[:, None], 0), alpha))
        return torch.cat(parts, dim=1)

    return batch.memo(("critical paths", alpha), compute)


def explained(batch: Activations) -> Bool[Tensor, "batch"]:
    """Whether every output of an input and all its relevance are finite numbers."""

    def compute() -> Tensor:
        assert batch.relevance is not None
        usable = batch.finite
        for name in batch.layers:
            usable = usable & batch.relevance[name].to(batch.device).isfinite().all(1)
        return usable

    return batch.memo("explained", compute)


def all_neurons(batch: Activations) -> Float[Tensor, "batch neurons"]:
    """Every neuron's output, layer after layer in execution order; zeros for a layer an input lacks."""

    def outputs(name: str) -> Tensor:
        values = batch.layers[name].to(batch.device)
        if name in batch.present:
            values = values.masked_fill(~batch.present[name].to(batch.device)[:, None], 0)
        return values

    return batch.memo("all neurons", lambda: torch.cat([outputs(name) for name in batch.layers], dim=1))


def pack(bits: Bool[Tensor, "rows bits"]) -> Shaped[Tensor, "rows bytes"]:
    """Eight bits to a byte, the first bit the highest."""
    spare = -bits.shape[1] % 8
    padded = torch.nn.functional.pad(bits, (0, spare)).reshape(len(bits), (bits.shape[1] + spare) // 8, 8)
    return (padded << _places(bits.device)).sum(2, dtype=torch.uint8)


def unpack(packed: Shaped[Tensor, "rows bytes"], count: int) -> Bool[Tensor, "rows bits"]:
    """The ``count`` bits of each row that :func:`pack` packed.

    >>> unpack(pack(torch.tensor([[True, False, True]])), 3)
    tensor([[ True, False,  True]])
    """
    return (packed[:, :, None] >> _places(packed.device) & 1).bool().flatten(1)[:, :count]


@dataclass(frozen=True, eq=False)
class PathRows(Record):
    """Some correctly classified training inputs: their classes, packed paths and, if kept, activations."""

    classes: Int[Tensor, "rows"]
    bits: Shaped[Tensor, "rows bytes"]
    activations: Float[Tensor, "rows neurons"] | None

    def __len__(self) -> int:
        return len(self.classes)


@dataclass(frozen=True, eq=False)
class Paths(Record):
    """The paths of correctly classified training inputs under one alpha, in the order they came.

    ``classes`` are all classes among the labels, rising, whether or not any input of them was classified
    correctly. ``parts`` are the inputs, joined as they grow so that there are few.
    """

    name: str
    alpha: float
    classes: Int[Tensor, "classes"]
    parts: tuple[PathRows, ...]

    @classmethod
    def empty(cls, name: str, neurons: int, device: torch.device) -> Paths:
        """Paths of no input, for what a criterion learns by this ``name``."""
        alpha, _, extra = name.removeprefix("paths(").removesuffix(")").partition(", ")
        classes = torch.zeros(0, dtype=torch.int64, device=device)
        bits = torch.zeros(0, -(-neurons // 8), dtype=torch.uint8, device=device)
        activations = torch.zeros(0, neurons, device=device) if extra else None
        return cls(name, float(alpha), classes, (PathRows(classes, bits, activations),))

    @property
    def rows(self) -> PathRows:
        """All inputs in one."""
        return _joined(self.parts)

    def joined(self) -> Paths:
        """The same with all inputs in one part, however they came."""
        return replace(self, parts=(self.rows,))

    def observe(self, batch: Activations) -> Paths:
        """The paths after a batch."""
        if batch.labels is None:
            raise CalibrationError(
                "paths are learnt from correctly classified inputs: calibrate with labels, "
                "for example with a loader of (inputs, labels)"
            )
        if batch.predictions is None or batch.relevance is None:
            lacking = "predictions" if batch.predictions is None else "relevance"
            raise CalibrationError(f"paths need {lacking}: pass Activations(..., {lacking}=...) or calibrate a model")
        usable = explained(batch)
        labels = batch.labels.to(batch.device, torch.int64)
        correct = (usable & (labels == batch.predictions.to(batch.device))).nonzero()[:, 0]
        keeps = self.parts[0].activations is not None
        rows = PathRows(
            labels[correct],
            pack(critical_paths(batch, self.alpha)[correct]),
            all_neurons(batch)[correct] if keeps else None,
        )
        classes = torch.unique(torch.cat([self.classes, labels[usable]]))
        return replace(self, classes=classes, parts=_appended(self.parts, rows))


def paths_name(alpha: float, *, activations: bool = False) -> str:
    """What a criterion learns from to get the paths of one alpha, with or without their inputs' activations.

    >>> paths_name(0.7), paths_name(1, activations=True)
    ('paths(0.7)', 'paths(1.0, activations)')
    """
    return f"paths({float(alpha)!r}{', activations' if activations else ''})"


def _appended(parts: tuple[PathRows, ...], rows: PathRows) -> tuple[PathRows, ...]:
    """The parts and one more; a part is joined to the one before unless that is much larger, so few are left."""
    if not len(rows):
        return parts
    while parts and len(parts[-1]) <= 2 * len(rows):
        parts, rows = parts[:-1], _joined((parts[-1], rows))
    return (*parts, rows)


def _joined(parts: Sequence[PathRows]) -> PathRows:
    if len(parts) == 1:
        return parts[0]
    kept = [part.activations for part in parts if part.activations is not None]
    return PathRows(
        torch.cat([part.classes for part in parts]),
        torch.cat([part.bits for part in parts]),
        torch.cat(kept) if kept else None,
    )


def _places(device: torch.device) -> Tensor:
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
