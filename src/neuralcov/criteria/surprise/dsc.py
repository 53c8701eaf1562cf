"""DSC, distance-ratio surprise coverage: how near inputs come to the border between classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.surprise.class_traces import ClassTraces
from neuralcov.criteria.surprise.nearest import NeighbourIndex, QueryGroup, nearest, nearest_in_groups, queries_at_once
from neuralcov.criteria.surprise.surprise import Scorer, SurpriseCriterion
from neuralcov.statistics.traces import middle


@dataclass(frozen=True, eq=False)
class DSC(SurpriseCriterion):
    """Distance-ratio surprise coverage (Kim, Feldt and Yoo, ICSE 2019).

        DSA(x) = ‖x − x_a‖ / ‖x_a − x_b‖
        DSC = number of distinct ⌊DSA(x) / bucket⌋

    with x_a the training trace of the same class nearest to x, and x_b the trace of any other class nearest
    **to x_a**; ties go to the lowest index. If x_a and x_b coincide, the surprise is 0 for x = x_a and x is left
    out otherwise, as it is where training saw no other class. Distances are exact, in float64.

    Args:
        bucket: width of a bucket.
        by: ``"predicted"`` or ``"label"``; ``None`` is refused, since other classes are needed.
        layers: see ``SurpriseCriterion``, as for the rest.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 1}, [nc.DSC(0.1)])
        >>> cov.calibrate(activations={"fc": torch.tensor([[0.0], [4.0]])}, predictions=[0, 1])
        >>> cov.scores(activations={"fc": torch.tensor([[1.0]])}, predictions=[0])["DSC(0.1)"].tolist()
        [0.25]
    """

    bucket: float = 0.1

    definition: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of(self, "by", "predicted", "label")

    @property
    @override
    def exclusion_reason(self) -> str:
        return (
            "their classes did not occur in calibration, or no other class did, or the nearest trace lies on one of "
            "another class, or their distances are beyond float64"
        )

    @override
    def scorer(self, view: ClassTraces) -> Scorer:
        return DistanceRatio(view)


class DistanceRatio(Scorer):
    """Finds x_a and x_b; the distance from x_a to x_b is kept once known."""

    def __init__(self, view: ClassTraces) -> None:
        super().__init__(view)
        self._to_others = torch.full((len(view.classes),), torch.nan, dtype=torch.float64, device=view.device)
        self._known = torch.zeros(len(view.classes), dtype=torch.bool)
        _, first = next(iter(view.stream()))
        self._everyone = NeighbourIndex(self._stream, view.rows, middle(first[:4096]), view.classes.to(view.device))

    @override
    def surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return ‖x − x_a‖ / ‖x_a − x_b‖; what is missing of the latter is found for the whole batch at once.

        Waits for the device for the classes, for what could be x_a, and for what could be x_b of those new among them.
        """
        step = queries_at_once(self.view.width, batch.device)
        if batch.size <= step:
            return self._surprises(batch)
        parts = [self._surprises(batch.take(slice(i, i + step))) for i in range(0, batch.size, step)]
        return torch.cat(parts)

    def _surprises(self, batch: Activations) -> Float[Tensor, "batch"]:
        classes, traces = self.classes_and_traces(batch)
        traces = traces.to(torch.promote_types(traces.dtype, self.view.dtype))
        groups = [
            QueryGroup((classes == label).nonzero()[:, 0], partial(self._own, label))
            for label in sorted(set(classes.tolist()))
            if label in self.view.members
        ]
        own = nearest_in_groups(traces, self._everyone, groups)
        self._find_others(own.possible)
        between = self._to_others[own.numbers.clamp(min=0)].masked_fill(own.numbers < 0, torch.nan)
        ratio = torch.where(between.isfinite(), own.distances / between, torch.nan)
        coincide = torch.where(own.distances == 0, own.distances, torch.nan)
        return torch.where(between == 0, coincide, ratio)

    def _own(self, label: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the training traces of one class."""
        yield self.view.members[label], self.view.of_class(label)

    def _find_others(self, numbers: Int[Tensor, "rising"]) -> None:
        """Learn how far these training traces are from the nearest of any other class, where that is not known yet."""
        missing = numbers[~self._known[numbers]]
        if len(missing):
            classes = self.view.classes[missing].to(self.view.device, non_blocking=True)
            others = nearest(self.view.rows(missing), self._everyone, classes)
            self._to_others[missing.to(self.view.device, non_blocking=True)] = others.distances
            self._known[missing] = True

    def _stream(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((torch.arange(rows.start, rows.stop), block) for rows, block in self.view.stream())
