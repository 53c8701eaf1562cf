"""LCC a second time, from the text of its definition alone: input by input, kind by kind, fold by fold.

Nothing here is shared with the criterion or with the brute force that the package ships. Kinds are tuples, not hashes;
sums are plain Python's; folds are dealt by the keys that the caller chose.
"""

import hashlib
import math
from collections import Counter

FOLDS = 10
_WORD = 2**64


def mix(number):
    """SplitMix64, constant added first: mix(0) = 0xE220A8397B1DCDAF."""
    z = (number + 0x9E3779B97F4A7C15) % _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % _WORD
    return z ^ (z >> 31)


class Suite:
    """Layer → one list of numbers per input, or ``None`` where the input lacks the layer; decisions; folds."""

    def __init__(self, layers, decisions, folds):
        self.layers, self.decisions, self.folds = layers, decisions, folds

    @property
    def size(self):
        return len(self.folds)


class Layer:
    """What training data teach about one layer."""

    def __init__(self, name, training, *, resolution, directions, seed):
        self.name = name
        key = int.from_bytes(hashlib.sha256(f"neuralcov.LCC/{seed}/{name}".encode()).digest()[:8], "little")
        width = next(len(row) for row in training.layers[name] if row is not None)
        self.resolution, self.directions = resolution, directions
        self.signs = [
            [1 if mix((key + i * directions + j) % _WORD) >> 63 else -1 for j in range(directions)]
            for i in range(width)
        ]
        self.offsets = [(mix((key + width * directions + j) % _WORD) >> 11) * 2.0**-53 for j in range(directions)]
        there = [self.project(row) for row in training.layers[name] if row is not None]
        columns = [[p[j] for p in there] for j in range(directions)]
        self.means = [math.fsum(column) / len(column) for column in columns]
        self.stds = [
            math.sqrt(math.fsum((p - mean) ** 2 for p in column) / len(column))
            for column, mean in zip(columns, self.means, strict=True)
        ]
        self.flat = [
            std <= 2.0**-48 * max(abs(p) for p in column) for std, column in zip(self.stds, columns, strict=True)
        ]
        self.map = Map([(kind, fold) for kind, fold in self.shown(training)])
        self.bias, self.fresh_off_map = self._by_folds(training)

    def project(self, row):
        return [math.fsum(self.signs[i][j] * a for i, a in enumerate(row)) for j in range(self.directions)]

    def box(self, row):
        found = []
        for p, mean, std, flat, u in zip(
            self.project(row), self.means, self.stds, self.flat, self.offsets, strict=True
        ):
            cell = 0 if flat else math.floor(self.resolution * (p - mean) / std + u)
            found.append(max(-(2**31), min(2**31, cell)))
        return tuple(found)

    def shown(self, suite):
        """The kind and fold of every input that has the layer."""
        decisions = suite.decisions or [None] * suite.size
        return [
            ((self.box(row), decision), fold)
            for row, decision, fold in zip(suite.layers[self.name], decisions, suite.folds, strict=True)
            if row is not None
        ]

    def _by_folds(self, training):
        shown = self.shown(training)
        ratios, off = [], []
        for fold in range(FOLDS):
            mine = [kind for kind, own in shown if own == fold]
            others = Map([(kind, own) for kind, own in shown if own != fold])
            if mine and others.total:
                if expected := others.expected(len(mine)):
                    ratios.append(others.value(set(mine)) / expected)
                off.append(sum(box not in others.boxes for box, _ in mine) / len(mine))
        enough = len(shown) >= 100 and ratios
        return (math.fsum(ratios) / len(ratios) if enough else 1.0), (math.fsum(off) / len(off) if off else None)


class Map:
    """Kinds of training inputs with their counts."""

    def __init__(self, shown):
        self.counts = Counter(kind for kind, _ in shown)
        self.boxes = {box for box, _ in self.counts}
        self.total = sum(self.counts.values())
        self.weight = math.fsum(count**-0.5 for count in self.counts.values())

    def rarity(self, kind):
        if kind in self.counts:
            return self.counts[kind] ** -0.5
        return 1.0 if kind[0] in self.boxes else 0.0

    def value(self, kinds):
        return math.fsum(self.rarity(kind) for kind in kinds) / self.weight

    def expected(self, inputs):
        """E(n)."""
        once, twice = (sum(count == times for count in self.counts.values()) for times in (1, 2))
        discount = once / (once + 2 * twice) if once + 2 * twice else 0.0
        known = 1 - once / self.total
        spread = math.fsum(count - discount for count in self.counts.values())
        terms = []
        for count in self.counts.values():
            p = known * (count - discount) / spread if spread else 0.0
            terms.append(count**-0.5 * (1 - (1 - p) ** inputs))
        return math.fsum(terms) / self.weight


class LCCByHand:
    """All figures of a suite."""

    def __init__(self, training, *, resolution=0.5, directions=8, over="median", seed=0):
        self.over = over
        self.layers = [
            Layer(name, training, resolution=resolution, directions=directions, seed=seed)
            for name, rows in training.layers.items()
            if sum(row is not None for row in rows) > 1
        ]
        # Constant as far as LCC looks: along none of its directions does such a layer vary.
        self.layers = [layer for layer in self.layers if not all(layer.flat)]

    def together(self, values):
        """Bring layers together, without those that have no such figure."""
        values = sorted(value for value in values if value is not None)
        if not values:
            return None
        middle, quarter = len(values) // 2, len(values) // 4
        if self.over == "mean":
            return math.fsum(values) / len(values)
        if self.over == "trimmed":
            kept = values[quarter : len(values) - quarter]
            return math.fsum(kept) / len(kept)
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    def value(self, suite, without=None):
        return self.together([layer.map.value(_kinds(layer, suite, without)) for layer in self.layers])

    def relative(self, suite, without=None):
        return self.together([_relative(layer, suite, without) for layer in self.layers])

    def figures(self, suite):
        """Every figure by its name; ``None`` where there is none."""
        by_layer = [_figures(layer, suite) for layer in self.layers]
        found = {name: self.together([own[name] for own in by_layer]) for name in by_layer[0]}
        found["off_map_expected"] = self.together([layer.fresh_off_map for layer in self.layers])
        found["relative"] = self.relative(suite)
        found["error"] = self._error(suite, self.value)
        found["relative_error"] = self._error(suite, self.relative)
        return found

    def _error(self, suite, figure):
        """The delete-a-fold jackknife for folds of unequal sizes (Busing, Meijer and van der Leeden, 1999).

        A fold's size is how many kinds its inputs showed, once for each input and layer.
        """
        sizes = Counter(fold for layer in self.layers for _, fold in layer.shown(suite))
        if len(sizes) < 2:
            return None
        whole, n, g = figure(suite), sum(sizes.values()), len(sizes)
        left = {fold: figure(suite, fold) for fold in sizes}
        if whole is None or None in left.values():
            return None
        mean = g * whole - math.fsum((1 - sizes[f] / n) * left[f] for f in sizes)
        squares = []
        for fold, size in sizes.items():
            h = n / size
            squares.append((h * whole - (h - 1) * left[fold] - mean) ** 2 / (h - 1))
        return math.sqrt(math.fsum(squares) / g)

    def rarefied(self, suite, inputs):
        """The mean value of so many of the inputs that show a kind at all; all of a layer's where it has fewer."""
        if inputs > sum(
            any(suite.layers[layer.name][i] is not None for layer in self.layers) for i in range(suite.size)
        ):
            return None
        values = []
        for layer in self.layers:
            counts = Counter(kind for kind, _ in layer.shown(suite))
            n = sum(counts.values())
            drawn = min(inputs, n)
            shown = [
                layer.map.rarity(kind) * (1 - math.comb(n - count, drawn) / math.comb(n, drawn))
                for kind, count in counts.items()
            ]
            values.append(math.fsum(shown) / layer.map.weight)
        return self.together(values)


def _kinds(layer, suite, without=None):
    return {kind for kind, fold in layer.shown(suite) if fold != without}


def _relative(layer, suite, without=None):
    n = sum(fold != without for _, fold in layer.shown(suite))
    if not n:
        return None
    expected = layer.bias * layer.map.expected(n)
    return layer.map.value(_kinds(layer, suite, without)) / expected if expected else None


def _figures(layer, suite):
    kinds = [kind for kind, _ in layer.shown(suite)]
    known, counts = layer.map, Counter(kinds)
    if not kinds:
        return dict.fromkeys(("off_map", "new_decisions", "next", "to_come", "to_come_error"))
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    variance = (
        once * (once - 1) / (2 * (twice + 1))
        + once * (2 * once - 1) ** 2 / (4 * (twice + 1) ** 2)
        + once**2 * twice * (once - 1) ** 2 / (4 * (twice + 1) ** 4)
    )
    new = sum(kind not in known.counts and kind[0] in known.boxes for kind in counts)
    return {
        "off_map": sum(box not in known.boxes for box, _ in kinds) / len(kinds),
        "new_decisions": None if suite.decisions is None else new / len(counts),
        "next": once / len(kinds),
        "to_come": once * (once - 1) / (2 * (twice + 1)),
        "to_come_error": math.sqrt(variance),
    }
