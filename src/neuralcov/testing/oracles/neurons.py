"""Oracles of criteria of neurons and layers: NC, KMNC, NBC, SNAC, TKNC, TKNP, SS and CC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np
from typing_extensions import override

from neuralcov.testing.oracles.oracle import Oracle
from neuralcov.testing.oracles.suites import Suite, joined


class NC(Oracle):
    """Tick neurons whose output, scaled within layer and input, is above the threshold."""

    threshold: float

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        covered: set[tuple[str, int]] = set()
        for name in suite.layers:
            for output in suite.outputs(name):
                low, high = output.min(), output.max()
                for neuron, a in enumerate(output):
                    scaled = (a - low) / (high - low) if high > low else 0.0
                    if scaled > self.threshold:
                        covered.add((name, neuron))
        return len(covered) / suite.neurons


class Ranged(Oracle):
    """Know the range of every neuron in training."""

    def ranges(self) -> Iterator[tuple[str, int, float, float]]:
        """Yield training minimum and maximum by layer and neuron."""
        for name in self.training.layers:
            seen = self.training.outputs(name)
            for neuron, (low, high) in enumerate(zip(seen.min(0), seen.max(0), strict=True)):
                yield name, neuron, low, high


class KMNC(Ranged):
    """Tick sections of the range that training showed."""

    sections: int

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        covered: set[tuple[str, int, int]] = set()
        outputs = {name: suite.outputs(name) for name in suite.layers}
        for name, neuron, low, high in self.ranges():
            for a in outputs[name][:, neuron]:
                if low <= a <= high and low < high:
                    section = min(int(np.floor((a - low) / (high - low) * self.sections)), self.sections - 1)
                    covered.add((name, neuron, section))
        return len(covered) / (self.sections * suite.neurons)


class NBC(Ranged):
    """Tick corners beyond the range that training showed."""

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite, corners = joined(batches), 0.0
        outputs = {name: suite.outputs(name) for name in suite.layers}
        for name, neuron, low, high in self.ranges():
            corners += (outputs[name][:, neuron] > high).any()
            corners += (outputs[name][:, neuron] < low).any()
        return corners / (2 * suite.neurons)


class SNAC(Ranged):
    """Tick neurons above what training showed."""

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        outputs = {name: suite.outputs(name) for name in suite.layers}
        upper = [(outputs[name][:, neuron] > high).any() for name, neuron, _, high in self.ranges()]
        return float(sum(upper)) / suite.neurons


def top(output: np.ndarray, k: int) -> frozenset[int]:
    """Return the k largest neurons; of equal ones the lower index."""
    return frozenset(sorted(range(len(output)), key=lambda neuron: (-output[neuron], neuron))[:k])


class TKNC(Oracle):
    """Tick neurons among the k largest of their layer."""

    k: int

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        found = {(name, n) for name in suite.layers for output in suite.outputs(name) for n in top(output, self.k)}
        return len(found) / suite.neurons


class TKNP(Oracle):
    """Count patterns of the k largest neurons of all layers."""

    k: int

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite = joined(batches)
        patterns = set()
        for row in range(len(suite)):
            if suite.finite(row):
                outputs = [part[row] if suite.has(name, row) else 0 * part[row] for name, part in suite.layers.items()]
                patterns.add(tuple(top(np.nan_to_num(output), self.k) for output in outputs))
        return float(len(patterns))


class SS(Oracle):
    """Count pairs of neurons where one sign alone changes and another follows."""

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite, pairs = joined(batches), 0
        shown: set[tuple[str, int, int]] = set()
        for first, second in pairwise(suite.layers):
            pairs += suite.layers[first].shape[1] * suite.layers[second].shape[1]
            rows = [r for r in range(len(suite)) if suite.finite(r) and suite.has(first, r) and suite.has(second, r)]
            for a, b in combinations(rows, 2):
                changed = np.flatnonzero((suite.layers[first][a] > 0) != (suite.layers[first][b] > 0))
                if len(changed) == 1:
                    follow = np.flatnonzero((suite.layers[second][a] > 0) != (suite.layers[second][b] > 0))
                    shown |= {(first, int(changed[0]), int(other)) for other in follow}
        return len(shown) / pairs if pairs else 0.0


class CC(Oracle):
    """Count outputs farther than the distance from all centres before them."""

    distance: float
    squared = False

    def centres(self, batches: Sequence[Suite], name: str) -> list[np.ndarray]:
        """Return the centres of one layer, in order."""
        found: list[np.ndarray] = []
        for output in joined(batches).outputs(name):
            squares = [((output - centre) ** 2).sum() for centre in found]
            if all((s if self.squared else np.sqrt(s)) > self.distance for s in squares):
                found.append(output)
        return found

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        return float(sum(len(self.centres(batches, name)) for name in batches[0].layers))

    @override
    def merged(self, a: Sequence[Suite], b: Sequence[Suite]) -> float:
        total = 0
        for name in a[0].layers:
            mine, theirs = self.centres(a, name), self.centres(b, name)
            for centre in theirs:
                squares = [((centre - other) ** 2).sum() for other in mine]
                if all((s if self.squared else np.sqrt(s)) > self.distance for s in squares):
                    mine.append(centre)
            total += len(mine)
        return float(total)
