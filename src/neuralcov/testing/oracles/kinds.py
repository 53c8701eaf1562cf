"""The oracle of LCC: plain Python and NumPy, one input at a time, from the written definition alone."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from neuralcov.testing.oracles.oracle import Oracle
from neuralcov.testing.oracles.suites import Suite, joined

Box = tuple[int, ...]
Kind = tuple[Box, int | None]

MASK = (1 << 64) - 1


def mix(seed: int) -> int:
    """Return one output of SplitMix64 for a seed (Steele, Lea and Flood, 2014)."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def over_layers(values: Iterable[float], over: str = "median") -> float:
    """Bring the values of layers together."""
    values = sorted(values)
    if over == "mean":
        return sum(values) / len(values)
    if over == "median":
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
    cut = len(values) // 4
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept)


class Layer:
    """Know one layer, calibrated on outputs (n, m) with decisions (or None) and folds."""

    def __init__(
        self,
        name: str,
        outputs: np.ndarray,
        decisions: Sequence[int] | None,
        folds: Iterable[int],
        resolution: float = 0.5,
        directions: int = 8,
        seed: int = 0,
    ) -> None:
        self.resolution, self.directions = resolution, directions
        digest = hashlib.sha256(f"neuralcov.LCC/{seed}/{name}".encode()).digest()
        self.key = int.from_bytes(digest[:8], "little")
        self.m = m = outputs.shape[1]
        bits = [[mix((self.key + i * directions + j) & MASK) >> 63 for j in range(directions)] for i in range(m)]
        self.signs = np.where(np.array(bits) == 1, 1.0, -1.0)
        self.offsets = [(mix((self.key + m * directions + j) & MASK) >> 11) * 2.0**-53 for j in range(directions)]
        along = outputs.astype(np.float64) @ self.signs
        self.mean, self.std = along.mean(0), along.std(0)
        self.flat = self.std <= 2.0**-48 * np.abs(along).max(0)
        self.counts = bool(len(outputs) >= 2 and not self.flat.all())
        self.training = [self.kind(row, None if decisions is None else decisions[i]) for i, row in enumerate(outputs)]
        self.folds = list(folds)
        self.table = Counter(self.training)
        self.boxes = {box for box, _ in self.table}
        self.total = sum(count**-0.5 for count in self.table.values())

    def kind(self, row: np.ndarray, decision: int | None) -> Kind:
        """Return the box of an input with what the model decided."""
        box = []
        for j in range(self.directions):
            if self.flat[j]:
                box.append(0)
                continue
            along = row.astype(np.float64) @ self.signs[:, j]
            step = math.floor(self.resolution * (along - self.mean[j]) / self.std[j] + self.offsets[j])
            box.append(max(-(2**31), min(2**31, step)))
        return tuple(box), decision

    def words(self, kind: Kind) -> tuple[int, ...]:
        """Return the 128 bits a kind is stored as."""
        found = []
        for word in (self.key, mix(self.key)):
            for step in kind[0]:
                word = mix(word ^ (step & MASK))
            found.append(mix(word ^ (0 if kind[1] is None else (kind[1] + 1) & MASK)))
        return tuple(found)

    def weight(self, kind: Kind) -> float:
        """Return what a kind counts."""
        return weight(kind, self.table, self.boxes)

    def value(self, kinds: Iterable[Kind]) -> float:
        """Return the value of a suite of these kinds."""
        return float(sum(self.weight(kind) for kind in set(kinds)) / self.total)

    def off_map(self, kinds: Sequence[Kind]) -> float:
        """Return the share of inputs in boxes that training never showed."""
        return sum(box not in self.boxes for box, _ in kinds) / len(kinds)

    def against_the_others(self) -> tuple[float, float]:
        """Return b, and the share of fresh training inputs off the map: each fold as a suite against the other nine."""
        ratios, outside = [], []
        for fold in range(10):
            suite = [kind for kind, f in zip(self.training, self.folds, strict=True) if f == fold]
            others = Counter(kind for kind, f in zip(self.training, self.folds, strict=True) if f != fold)
            if not suite or not others:
                continue
            boxes = {box for box, _ in others}
            total = sum(count**-0.5 for count in others.values())
            value = sum(weight(kind, others, boxes) for kind in set(suite)) / total
            expected = expected_share(others, len(suite))
            outside.append(sum(box not in boxes for box, _ in suite) / len(suite))
            if expected > 0:
                ratios.append(value / expected)
        b = sum(ratios) / len(ratios) if ratios and len(self.training) >= 100 else 1.0
        return b, sum(outside) / len(outside) if outside else math.nan

    def relative(self, kinds: Sequence[Kind]) -> float:
        """Return the value against that of as many fresh training inputs."""
        expected = self.against_the_others()[0] * expected_share(self.table, len(kinds))
        return self.value(kinds) / expected if expected > 0 else math.nan


def weight(kind: Kind, table: Counter[Kind], boxes: set[Box]) -> float:
    """Return what a kind counts by how often training showed it."""
    if kind in table:
        return float(table[kind] ** -0.5)
    return 1.0 if kind[0] in boxes else 0.0


def expected_share(table: Counter[Kind], n: int) -> float:
    """Return E(n): the share of the weight of training's kinds that n fresh training inputs are expected to show."""
    counts = list(table.values())
    once, twice, inputs = counts.count(1), counts.count(2), sum(counts)
    delta = once / (once + 2 * twice) if once + 2 * twice else 0.0
    rest = sum(count - delta for count in counts)
    known = 1 - once / inputs
    shown = 0.0
    for count in counts:
        p = known * (count - delta) / rest if rest else 0.0
        shown += count**-0.5 * (1 - (1 - p) ** n)
    return float(shown / sum(count**-0.5 for count in counts))


def jackknife(whole: float, left: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the delete-a-fold standard error from a figure with all folds and without each, by the folds' sizes."""
    parts = [sum(sizes) / size for size in sizes]
    pseudo = [part * whole - (part - 1) * value for part, value in zip(parts, left, strict=True)]
    middle = len(left) * whole - sum((1 - 1 / part) * value for part, value in zip(parts, left, strict=True))
    squares = [(value - middle) ** 2 / (part - 1) for value, part in zip(pseudo, parts, strict=True)]
    return math.sqrt(sum(squares) / len(squares))


def without_each_fold(kinds: Iterable[Kind], folds: Iterable[int]) -> list[list[Kind]]:
    """Return the suites that are left without each of its folds."""
    by_fold: dict[int, list[Kind]] = defaultdict(list)
    for kind, fold in zip(kinds, folds, strict=True):
        by_fold[fold].append(kind)
    return [[kind for other, part in by_fold.items() if other != fold for kind in part] for fold in sorted(by_fold)]


class LCC(Oracle):
    """Weigh the kinds that a suite shows, layer by layer."""

    exact = False
    resolution: float
    directions: int
    over: str
    seed: int

    def __init__(self, training: Suite, **settings: Any) -> None:
        super().__init__(training, **settings)
        there = training.finite_rows
        # Folds decide references beside the value, and no value.
        self.maps = {
            name: Layer(
                name,
                part[there & training.having(name)],
                training.predictions[there & training.having(name)].tolist(),
                [0] * int((there & training.having(name)).sum()),
                self.resolution,
                self.directions,
                self.seed,
            )
            for name, part in training.layers.items()
        }

    @override
    def value(self, batches: Sequence[Suite]) -> float:
        suite, values = joined(batches), []
        for name, layer in self.maps.items():
            if layer.counts:
                rows = np.flatnonzero(suite.finite_rows & suite.having(name))
                kinds = [layer.kind(suite.layers[name][row], int(suite.predictions[row])) for row in rows]
                values.append(layer.value(kinds))
        return over_layers(values, self.over) if values else 0.0
