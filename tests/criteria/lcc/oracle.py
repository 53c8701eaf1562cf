"""LCC by brute force: plain Python and NumPy, one input at a time, from the written definition alone."""

import hashlib
import math
from collections import Counter, defaultdict

import numpy as np

MASK = (1 << 64) - 1


def mix(seed):
    """One output of SplitMix64 for a seed (Steele, Lea and Flood, 2014)."""
    z = (seed + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def over_layers(values, over="median"):
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
    """One layer, calibrated on outputs (n, m) with decisions (or None) and folds."""

    def __init__(self, name, outputs, decisions, folds, resolution=0.5, directions=8, seed=0):
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
        self.counts = len(outputs) >= 2 and not self.flat.all()
        self.training = [self.kind(row, None if decisions is None else decisions[i]) for i, row in enumerate(outputs)]
        self.folds = list(folds)
        self.table = Counter(self.training)
        self.boxes = {box for box, _ in self.table}
        self.total = sum(count**-0.5 for count in self.table.values())

    def kind(self, row, decision):
        box = []
        for j in range(self.directions):
            if self.flat[j]:
                box.append(0)
                continue
            along = row.astype(np.float64) @ self.signs[:, j]
            step = math.floor(self.resolution * (along - self.mean[j]) / self.std[j] + self.offsets[j])
            box.append(max(-(2**31), min(2**31, step)))
        return tuple(box), decision

    def words(self, kind):
        """The 128 bits a kind is stored as."""
        found = []
        for word in (self.key, mix(self.key)):
            for step in kind[0]:
                word = mix(word ^ (step & MASK))
            found.append(mix(word ^ (0 if kind[1] is None else (kind[1] + 1) & MASK)))
        return tuple(found)

    def weight(self, kind):
        return weight(kind, self.table, self.boxes)

    def value(self, kinds):
        return sum(self.weight(kind) for kind in set(kinds)) / self.total

    def off_map(self, kinds):
        return sum(box not in self.boxes for box, _ in kinds) / len(kinds)

    def against_the_others(self):
        """b, and the share of fresh training inputs off the map: each fold as a suite against the other nine."""
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

    def relative(self, kinds):
        expected = self.against_the_others()[0] * expected_share(self.table, len(kinds))
        return self.value(kinds) / expected if expected > 0 else math.nan


def weight(kind, table, boxes):
    if kind in table:
        return table[kind] ** -0.5
    return 1.0 if kind[0] in boxes else 0.0


def expected_share(table, n):
    """E(n): the share of the weight of training's kinds that n fresh training inputs are expected to show."""
    counts = list(table.values())
    once, twice, inputs = counts.count(1), counts.count(2), sum(counts)
    delta = once / (once + 2 * twice) if once + 2 * twice else 0.0
    rest = sum(count - delta for count in counts)
    known = 1 - once / inputs
    shown = 0.0
    for count in counts:
        p = known * (count - delta) / rest if rest else 0.0
        shown += count**-0.5 * (1 - (1 - p) ** n)
    return shown / sum(count**-0.5 for count in counts)


def jackknife(values):
    """The delete-a-fold standard error."""
    mean = sum(values) / len(values)
    return math.sqrt((len(values) - 1) / len(values) * sum((value - mean) ** 2 for value in values))


def without_each_fold(kinds, folds):
    """The suites that are left without each of its folds."""
    by_fold = defaultdict(list)
    for kind, fold in zip(kinds, folds, strict=True):
        by_fold[fold].append(kind)
    return [[kind for other, part in by_fold.items() if other != fold for kind in part] for fold in sorted(by_fold)]
