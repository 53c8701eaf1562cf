"""Every criterion once more, as its definition reads: plain loops in float64, slow, and without a line of the package.

A value is that of a list of batches, in order, on top of nothing. Where a definition leaves a decision to the last
digit, the oracle says so by raising ``Undecided``. Paths are in ``path_oracles``.
"""

from itertools import combinations, pairwise

import numpy as np

from tests.outside.suites import joined

NEAR = 1e-9


class Undecided(Exception):
    """Rounding decides."""


class Oracle:
    """One criterion with its settings. ``exact``: values are counts, so that nothing is left to rounding."""

    exact = True

    def __init__(self, training, **settings):
        self.training = training
        self.__dict__.update(settings)

    def value(self, batches):
        """The value of all these batches."""
        raise NotImplementedError

    def merged(self, a, b):
        """The value of one coverage that saw ``a`` merged with one that saw ``b``."""
        return self.value([*a, *b])

    def excluded(self, suite, row):
        """Whether an input is left out."""
        return not suite.finite(row)


# Neuron-wise


class NC(Oracle):
    def value(self, batches):
        suite, covered = joined(batches), set()
        for name in suite.layers:
            for output in suite.outputs(name):
                low, high = output.min(), output.max()
                for neuron, a in enumerate(output):
                    scaled = (a - low) / (high - low) if high > low else 0.0
                    if scaled > self.threshold:
                        covered.add((name, neuron))
        return len(covered) / suite.neurons


class Ranged(Oracle):
    def ranges(self):
        """Training minimum and maximum by layer and neuron."""
        for name in self.training.layers:
            seen = self.training.outputs(name)
            for neuron, (low, high) in enumerate(zip(seen.min(0), seen.max(0), strict=True)):
                yield name, neuron, low, high


class KMNC(Ranged):
    def value(self, batches):
        suite, covered = joined(batches), set()
        outputs = {name: suite.outputs(name) for name in suite.layers}
        for name, neuron, low, high in self.ranges():
            for a in outputs[name][:, neuron]:
                if low <= a <= high and low < high:
                    section = min(int(np.floor((a - low) / (high - low) * self.sections)), self.sections - 1)
                    covered.add((name, neuron, section))
        return len(covered) / (self.sections * suite.neurons)


class NBC(Ranged):
    def value(self, batches):
        suite, corners = joined(batches), 0
        outputs = {name: suite.outputs(name) for name in suite.layers}
        for name, neuron, low, high in self.ranges():
            corners += (outputs[name][:, neuron] > high).any()
            corners += (outputs[name][:, neuron] < low).any()
        return corners / (2 * suite.neurons)


class SNAC(Ranged):
    def value(self, batches):
        suite = joined(batches)
        outputs = {name: suite.outputs(name) for name in suite.layers}
        upper = [(outputs[name][:, neuron] > high).any() for name, neuron, _, high in self.ranges()]
        return sum(upper) / suite.neurons


# Layer-wise


def top(output, k):
    """The k largest neurons; of equal ones the lower index."""
    return frozenset(sorted(range(len(output)), key=lambda neuron: (-output[neuron], neuron))[:k])


class TKNC(Oracle):
    def value(self, batches):
        suite = joined(batches)
        found = {(name, n) for name in suite.layers for output in suite.outputs(name) for n in top(output, self.k)}
        return len(found) / suite.neurons


class TKNP(Oracle):
    def value(self, batches):
        suite = joined(batches)
        patterns = set()
        for row in range(len(suite)):
            if suite.finite(row):
                outputs = [part[row] if suite.has(name, row) else 0 * part[row] for name, part in suite.layers.items()]
                patterns.add(tuple(top(np.nan_to_num(output), self.k) for output in outputs))
        return float(len(patterns))


class SS(Oracle):
    def value(self, batches):
        suite, shown, pairs = joined(batches), set(), 0
        for first, second in pairwise(suite.layers):
            pairs += suite.layers[first].shape[1] * suite.layers[second].shape[1]
            rows = [r for r in range(len(suite)) if suite.finite(r) and suite.has(first, r) and suite.has(second, r)]
            for a, b in combinations(rows, 2):
                changed = np.flatnonzero((suite.layers[first][a] > 0) != (suite.layers[first][b] > 0))
                if len(changed) == 1:
                    follow = np.flatnonzero((suite.layers[second][a] > 0) != (suite.layers[second][b] > 0))
                    shown |= {(first, changed[0], other) for other in follow}
        return len(shown) / pairs if pairs else 0.0


class CC(Oracle):
    def centres(self, batches, name, centres=()):
        """The centres of one layer, in order."""
        found = list(centres)
        for output in joined(batches).outputs(name):
            squares = [((output - centre) ** 2).sum() for centre in found]
            if all((s if self.squared else np.sqrt(s)) > self.distance for s in squares):
                found.append(output)
        return found

    def value(self, batches):
        return float(sum(len(self.centres(batches, name)) for name in batches[0].layers))

    def merged(self, a, b):
        total = 0
        for name in a[0].layers:
            mine, theirs = self.centres(a, name), self.centres(b, name)
            for centre in theirs:
                squares = [((centre - other) ** 2).sum() for other in mine]
                if all((s if self.squared else np.sqrt(s)) > self.distance for s in squares):
                    mine.append(centre)
            total += len(mine)
        return float(total)


# Spread and volume


def covariance(rows):
    """Divided by n."""
    apart = rows - rows.mean(0)
    return apart.T @ apart / len(rows)


def norm(rows):
    """The sum of absolute entries of the covariance, divided by the neurons' square."""
    return np.abs(covariance(rows)).sum() / rows.shape[1] ** 2 if len(rows) else 0.0


class NLC(Oracle):
    exact = False

    def taken(self, batches):
        """By layer and class, the outputs that were taken."""
        found = {}
        for batch in batches:
            for name, width in ((name, part.shape[1]) for name, part in batch.layers.items()):
                for label in range(self.classes or 1):
                    of_class = batch.labels == label if self.classes is not None else np.ones(len(batch), dtype=bool)
                    new = batch.layers[name][batch.finite_rows & batch.having(name) & of_class]
                    before = found.setdefault((name, label), np.zeros((0, width)))
                    if len(new) and self.takes(before, after := np.concatenate([before, new])):
                        found[name, label] = after
        return found

    def takes(self, before, after):
        """Whether a layer takes what turns one into the other."""
        if self.rule == "all" or not len(before):
            return True
        was, would_be = norm(before), norm(after)
        # Repeating all there is changes nothing but digits, and equal numbers may have a mean that is off by one.
        if abs(was - would_be) <= NEAR * max(was, would_be, (self.digits * np.abs(after).max()) ** 2):
            raise Undecided
        return would_be > was

    def value(self, batches):
        return sum(norm(rows) for rows in self.taken(batches).values()) / (self.classes or 1)

    def merged(self, a, b):
        if self.rule == "all":
            return self.value([*a, *b])
        mine, theirs = self.taken(a), self.taken(b)
        total = 0.0
        for key in mine:
            both = np.concatenate([mine[key], theirs[key]])
            total += max(norm(mine[key]), norm(theirs[key]), norm(both) if len(mine[key]) and len(theirs[key]) else 0)
        return total / (self.classes or 1)

    def excluded(self, suite, row):
        return not suite.finite(row) or (self.classes is not None and not 0 <= suite.labels[row] < self.classes)


class LVC(Oracle):
    exact = False
    held_out = None

    def volume(self, suite):
        """Mean over the layers that varied in training, in bits per neuron."""
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

    def value(self, batches):
        found = self.volume(joined(batches))
        if not self.relative:
            return found
        unit = self.volume(self.training if self.held_out is None else self.held_out)
        return found / unit if unit > 0 else found


# Surprise


class Surprise(Oracle):
    """Coverage of buckets; subclasses know one input's surprise, ``None`` for one without a place."""

    exact = True
    layers = None

    def __init__(self, training, **settings):
        super().__init__(training, **settings)
        self.kept = [row for row in range(len(training)) if training.finite(row)]
        traces = np.stack([self.whole_trace(training, row) for row in self.kept])
        self.columns = np.flatnonzero(traces.var(0) >= self.min_variance)
        self.traces = traces[:, self.columns]
        self.classes = np.array([self.class_of(training, row) for row in self.kept])

    @staticmethod
    def whole_trace(suite, row):
        return np.concatenate(
            [part[row] if suite.has(name, row) else 0 * np.nan_to_num(part[row]) for name, part in suite.layers.items()]
        )

    def class_of(self, suite, row):
        if self.by is None:
            return 0
        return int((suite.predictions if self.by == "predicted" else suite.labels)[row])

    def score(self, suite, row):
        """The surprise of one input."""
        if not suite.finite(row):
            return None
        label = self.class_of(suite, row)
        if not (self.classes == label).any():
            return None
        return self.surprise(self.whole_trace(suite, row)[self.columns], label)

    def surprise(self, trace, label):
        raise NotImplementedError

    def excluded(self, suite, row):
        return self.score(suite, row) is None

    def buckets(self, suite):
        scores = [self.score(suite, row) for row in range(len(suite))]
        for score in scores:
            if score:
                steps = score / self.bucket
                if abs(steps - round(steps)) < 1e-7 * max(1.0, abs(steps)):
                    raise Undecided
        return {int(np.floor(score / self.bucket)) for score in scores if score is not None}

    def value(self, batches):
        covered = self.buckets(joined(batches))
        if self.upper is None:
            return float(len(covered))
        count = max(1, int(np.ceil(self.upper / self.bucket - 1e-9)))
        return len([number for number in covered if 0 <= number < count]) / count


class LSC(Surprise):
    def surprise(self, trace, label):
        own = self.traces[self.classes == label]
        powers = -((own - trace) ** 2).sum(1) / (2 * self.bandwidth**2)
        height = powers.max()
        log_mean = height + np.log(np.exp(powers - height).mean())
        return trace.size * np.log(self.bandwidth * np.sqrt(2 * np.pi)) - log_mean


class DSC(Surprise):
    def surprise(self, trace, label):
        own, others = self.traces[self.classes == label], self.traces[self.classes != label]
        if not len(others):
            return None
        to_own = np.sqrt(((own - trace) ** 2).sum(1))
        nearest = own[to_own.argmin()]
        between = np.sqrt(((others - nearest) ** 2).sum(1)).min()
        if between == 0:
            return 0.0 if to_own.min() == 0 else None
        return to_own.min() / between


class MDSC(Surprise):
    def surprise(self, trace, label):
        own = self.traces[self.classes == label]
        spread, apart = covariance(own), trace - own.mean(0)
        if (np.ptp(own, axis=0) == 0).all():
            return 0.0 if (trace == own[0]).all() else None
        matrix = spread + self.ridge * np.trace(spread) / len(spread) * np.eye(len(spread))
        return float(np.sqrt(apart @ np.linalg.solve(matrix, apart)))
