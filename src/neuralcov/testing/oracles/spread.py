"""Oracles of spread and volume: NLC and LVC."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from neuralcov.testing.oracles.oracle import NEAR, Oracle, Undecided, covariance
from neuralcov.testing.oracles.suites import Suite, joined


def norm(rows: np.ndarray) -> float:
    """Return the sum of absolute entries of the covariance, divided by the neurons' square."""
    return float(np.abs(covariance(rows)).sum()) / rows.shape[1] ** 2 if len(rows) else 0.0


class NLC(Oracle):
    """Sum the norms of the covariances of what layers take."""

    rule: str
    classes: int | None
    digits = 1.0

    exact = False

    def taken(self, batches: Sequence[Suite]) -> dict[tuple[str, int], np.ndarray]:
        """Return, by layer and class, the outputs that were taken."""
        found: dict[tuple[str, int], np.ndarray] = {}
        for batch in batches:
            for name, width in ((name, part.shape[1]) for name, part in batch.layers.items()):
                for label in range(self.classes or 1):
                    of_class = batch.labels == label if self.classes is not None else np.ones(len(batch), dtype=bool)
                    new = batch.layers[name][batch.finite_rows & batch.having(name) & of_class]
                    before = found.setdefault((name, label), np.zeros((0, width)))
                    if len(new) and self.takes(before, after := np.concatenate([before, new])):
                        found[name, label] = after
        return found

    def takes(self, before: np.ndarray, after: np.ndarray) -> bool:
        """Return whether a layer takes what turns one into the other."""
        if self.rule == "all" or not len(before):
            return True
        was, would_be = norm(before), norm(after)
        # Repeating all there is changes nothing but digits, and equal numbers may have a mean that is off by one.
        if abs(was - would_be) <= NEAR * max(was, would_be, (self.digits * np.abs(after).max()) ** 2):
            raise Undecided
        return would_be > was

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        return sum(norm(rows) for rows in self.taken(batches).values()) / (self.classes or 1)

    @override
    def merged(self, a: Sequence[Suite], b: Sequence[Suite]) -> float:
        if self.rule == "all":
            return self.value([*a, *b])
        mine, theirs = self.taken(a), self.taken(b)
        total = 0.0
        for key in mine:
            both = np.concatenate([mine[key], theirs[key]])
            total += max(norm(mine[key]), norm(theirs[key]), norm(both) if len(mine[key]) and len(theirs[key]) else 0)
        return total / (self.classes or 1)

    @override
    def excluded(self, suite: Suite, row: int) -> bool:
        return not suite.finite(row) or (self.classes is not None and not 0 <= suite.labels[row] < self.classes)


class LVC(Oracle):
    """Measure the volume that a suite adds to that of training."""

    relative: bool
    ridge: float

    exact = False
    held_out: Suite | None = None

    def volume(self, suite: Suite) -> float:
        """Return the mean over the layers that varied in training, in bits per neuron."""
        volumes = []
        for name in self.training.layers:
            training, seen = self.training.outputs(name), suite.outputs(name)
            spread = covariance(training)
            if (np.ptp(training, axis=0) == 0).all():
                continue
            width = len(spread)
            base = spread + self.ridge * np.trace(spread) / width * np.eye(width)
            if len(seen) < 2:
                volumes.append(0.0)
                continue
            grown = np.linalg.slogdet(base + covariance(seen))[1] - np.linalg.slogdet(base)[1]
            volumes.append(grown / (width * np.log(2)))
        return float(np.mean(volumes)) if volumes else 0.0

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        found = self.volume(joined(batches))
        if not self.relative:
            return found
        unit = self.volume(self.training if self.held_out is None else self.held_out)
        return found / unit if unit > 0 else found
