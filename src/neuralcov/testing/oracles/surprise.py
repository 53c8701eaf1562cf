"""Oracles of surprise: LSC, DSC and MDSC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from neuralcov.testing.oracles.oracle import Oracle, Undecided, covariance
from neuralcov.testing.oracles.suites import Suite, joined


class Surprise(Oracle):
    """Cover buckets; subclasses know one input's surprise, ``None`` for one without a place."""

    bucket: float
    by: str | None
    upper: float | None
    min_variance: float

    def __init__(self, training: Suite, **settings: Any) -> None:
        super().__init__(training, **settings)
        self.kept = [row for row in range(len(training)) if training.finite(row)]
        traces = np.stack([self.whole_trace(training, row) for row in self.kept])
        self.columns = np.flatnonzero(traces.var(0) >= self.min_variance)
        self.traces = traces[:, self.columns]
        self.classes = np.array([self.class_of(training, row) for row in self.kept])

    @staticmethod
    def whole_trace(suite: Suite, row: int) -> np.ndarray:
        """Return the outputs of all layers, 0 for those that an input lacks."""
        return np.concatenate(
            [part[row] if suite.has(name, row) else 0 * np.nan_to_num(part[row]) for name, part in suite.layers.items()]
        )

    def class_of(self, suite: Suite, row: int) -> int:
        """Return the class whose traces an input is scored against."""
        if self.by is None:
            return 0
        return int((suite.predictions if self.by == "predicted" else suite.labels)[row])

    def score(self, suite: Suite, row: int) -> float | None:
        """Return the surprise of one input."""
        if not suite.finite(row):
            return None
        label = self.class_of(suite, row)
        if not (self.classes == label).any():
            return None
        return self.surprise(self.whole_trace(suite, row)[self.columns], label)

    def surprise(self, trace: np.ndarray, label: int) -> float | None:
        """Return the surprise of a trace among those of a class."""
        raise NotImplementedError

    @override
    def excluded(self, suite: Suite, row: int) -> bool:
        return self.score(suite, row) is None

    def buckets(self, suite: Suite) -> set[int]:
        """Return the buckets that inputs cover."""
        scores = [self.score(suite, row) for row in range(len(suite))]
        for score in scores:
            if score:
                steps = score / self.bucket
                if abs(steps - round(steps)) < 1e-7 * max(1.0, abs(steps)):
                    raise Undecided
        return {int(np.floor(score / self.bucket)) for score in scores if score is not None}

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        covered = self.buckets(joined(batches))
        if self.upper is None:
            return float(len(covered))
        count = max(1, int(np.ceil(self.upper / self.bucket - 1e-9)))
        return len([number for number in covered if 0 <= number < count]) / count


class LSC(Surprise):
    """Score by the density of a class's traces."""

    bandwidth: float

    @override
    def surprise(self, trace: np.ndarray, label: int) -> float | None:
        own = self.traces[self.classes == label]
        powers = -((own - trace) ** 2).sum(1) / (2 * self.bandwidth**2)
        height = powers.max()
        log_mean = height + np.log(np.exp(powers - height).mean())
        return float(trace.size * np.log(self.bandwidth * np.sqrt(2 * np.pi)) - log_mean)


class DSC(Surprise):
    """Score by the distance to the own class against that to others."""

    @override
    def surprise(self, trace: np.ndarray, label: int) -> float | None:
        own, others = self.traces[self.classes == label], self.traces[self.classes != label]
        if not len(others):
            return None
        to_own = np.sqrt(((own - trace) ** 2).sum(1))
        nearest = own[to_own.argmin()]
        between = np.sqrt(((others - nearest) ** 2).sum(1)).min()
        if between == 0:
            return 0.0 if to_own.min() == 0 else None
        return float(to_own.min() / between)


class MDSC(Surprise):
    """Score by Mahalanobis' distance to the own class."""

    ridge: float

    @override
    def surprise(self, trace: np.ndarray, label: int) -> float | None:
        own = self.traces[self.classes == label]
        spread, apart = covariance(own), trace - own.mean(0)
        if (np.ptp(own, axis=0) == 0).all():
            return 0.0 if (trace == own[0]).all() else None
        matrix = spread + self.ridge * np.trace(spread) / len(spread) * np.eye(len(spread))
        return float(np.sqrt(apart @ np.linalg.solve(matrix, apart)))
