"""The oracle of NPC, with one cluster per class, which needs no k-means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from neuralcov.testing.oracles.oracle import Oracle, Undecided
from neuralcov.testing.oracles.suites import Suite, joined

Neuron = tuple[str, int]


def critical(relevance: np.ndarray, alpha: float) -> set[int]:
    """Return the shortest prefix of neurons by falling relevance that reaches alpha of the positive relevance."""
    total, reached = sum(sorted((r for r in relevance if r > 0), reverse=True)), 0.0
    path: set[int] = set()
    for neuron in sorted(range(len(relevance)), key=lambda n: (-relevance[n], n)):
        if relevance[neuron] <= 0 or reached >= alpha * total:
            break
        path.add(neuron)
        reached += relevance[neuron]
    return path


def jaccard(a: set[Neuron], b: set[Neuron]) -> float:
    """Return the share that two paths have in common."""
    return len(a & b) / len(a | b) if a | b else 0.0


class NPC(Oracle):
    """Tick buckets of likeness to the paths of a class."""

    alpha: float
    beta: float
    buckets: int
    mode: str

    def __init__(self, training: Suite, **settings: Any) -> None:
        super().__init__(training, **settings)
        usable = [row for row in range(len(training)) if training.finite(row)]
        self.classes = sorted({int(training.labels[row]) for row in usable})
        self.members = {
            label: [r for r in usable if training.labels[r] == label == training.predictions[r]]
            for label in self.classes
        }
        self.members = {label: rows for label, rows in self.members.items() if rows}
        self.abstract: dict[int, set[Neuron]] = {}
        for label, rows in self.members.items():
            paths = [self.path(training, row) for row in rows]
            every: set[Neuron] = set().union(*paths)
            share = {neuron: sum(neuron in p for p in paths) / len(paths) for neuron in every}
            self.abstract[label] = {neuron for neuron, part in share.items() if part >= self.beta}
        self.furthest = {name: self.largest(name) for name in training.layers}

    def path(self, suite: Suite, row: int) -> set[Neuron]:
        """Return the critical neurons of an input."""
        return {
            (name, neuron)
            for name in suite.layers
            if suite.has(name, row)
            for neuron in critical(suite.relevance[name][row], self.alpha)
        }

    def distance(self, suite: Suite, row: int, label: int, name: str, others: Sequence[int]) -> float | None:
        """Return the least distance to training inputs over the neurons of the class's path."""
        neurons = sorted(neuron for layer, neuron in self.abstract[label] if layer == name)
        here, there = suite.layers[name][row], [self.training.layers[name][other] for other in others]
        return min((float(np.sqrt(((here - x)[neurons] ** 2).sum())) for x in there), default=None)

    def largest(self, name: str) -> float:
        """Return the largest distance of a training input to the others of its class."""
        found = [
            self.distance(self.training, row, label, name, [other for other in rows if other != row])
            for label, rows in self.members.items()
            for row in rows
        ]
        return max((d for d in found if d is not None), default=0.0)

    def bucket(self, share: float) -> int:
        """Return the bucket of a share."""
        steps = share * self.buckets
        if self.mode == "activation" and steps and abs(steps - round(steps)) < 1e-9 and round(steps) < self.buckets:
            raise Undecided
        return min(int(np.floor(steps)), self.buckets - 1)

    def cells(self, suite: Suite, row: int) -> set[tuple[Any, ...]]:
        """Return the cells that an input covers."""
        if self.excluded(suite, row):
            return set()
        label = int(suite.predictions[row])
        if self.mode == "structure":
            return {(label, self.bucket(jaccard(self.path(suite, row), self.abstract[label])))}
        found: set[tuple[Any, ...]] = set()
        for name, upper in self.furthest.items():
            if not suite.has(name, row):
                continue
            distance = self.distance(suite, row, label, name, self.members[label])
            assert distance is not None
            if upper > 0 and abs(distance / upper - 1) < 1e-12 and distance != upper:
                raise Undecided
            if upper > 0 and distance <= upper:
                found.add((label, name, self.bucket(distance / upper)))
        return found

    @override
    def excluded(self, suite: Suite, row: int) -> bool:
        return not suite.finite(row) or int(suite.predictions[row]) not in self.abstract

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        covered: set[tuple[Any, ...]] = set().union(*(self.cells(suite, row) for row in range(len(suite))))
        layers = len(suite.layers) if self.mode == "activation" else 1
        return len(covered) / (len(self.classes) * layers * self.buckets)
