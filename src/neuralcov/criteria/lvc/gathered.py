"""Which statistics LVC learns from: of layers as they are, or of wider ones along a few random directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.layout import Layout
from neuralcov.core.projected import projected, projected_layout
from neuralcov.criteria.lvc.folds import Folds, MomentsByFold
from neuralcov.criteria.lvc.sample import InputSample, Sample
from neuralcov.statistics.moments import LayerMoments, Moments
from neuralcov.statistics.statistic import Statistic


@dataclass(frozen=True)
class ProjectedMoments(Moments, name="projected-moments"):
    """Gather moments of layers along so many random directions."""

    directions: int

    @override
    def init(self, layout: Layout) -> tuple[LayerMoments, ...]:
        return super().init(projected_layout(layout, self.directions))

    @override
    def observe(self, gathered: tuple[LayerMoments, ...], batch: Activations) -> tuple[LayerMoments, ...]:
        return super().observe(gathered, projected(batch, self.directions))


@dataclass(frozen=True)
class ProjectedSample(Sample, name="projected-sample"):
    """Gather a sample of inputs along so many random directions."""

    directions: int

    @override
    def init(self, layout: Layout) -> InputSample:
        return super().init(projected_layout(layout, self.directions))

    @override
    def observe(self, gathered: InputSample, batch: Activations) -> InputSample:
        return super().observe(gathered, projected(batch, self.directions))


@dataclass(frozen=True)
class ProjectedFolds(Folds, name="projected-folds"):
    """Gather moments by fold along so many random directions."""

    directions: int

    @override
    def init(self, layout: Layout) -> MomentsByFold:
        return super().init(projected_layout(layout, self.directions))

    @override
    def observe(self, gathered: MomentsByFold, batch: Activations) -> MomentsByFold:
        return super().observe(gathered, projected(batch, self.directions))


@dataclass(frozen=True)
class Sources:
    """The statistics of one LVC: covariances, a sample to see how long inputs get, folds to correct a reference."""

    moments: Moments
    sample: Sample
    folds: Folds | None

    @classmethod
    def of(cls, groups: int, sketch: int | None) -> Sources:
        """Return those of so many folds, and of layers along so many directions, ``None`` for layers as they are."""
        if sketch is None:
            return cls(Moments(), Sample(), Folds(groups) if groups > 1 else None)
        folds = ProjectedFolds(groups, sketch) if groups > 1 else None
        return cls(ProjectedMoments(sketch), ProjectedSample(sketch), folds)

    def all(self, *, folds: bool) -> frozenset[Statistic[Any]]:
        """Return all of them, folds only where they are asked for."""
        return frozenset({self.moments, self.sample, *([self.folds] if folds and self.folds is not None else [])})
