"""Inputs with relevance, NPC measured, and NPC by brute force."""

import numpy as np
import torch

import neuralcov as nc
from tests.criteria.npc.test_kmeans import brute_force as clusters_of
from tests.criteria.npc.test_paths import brute_force as critical
from tests.support import WIDTHS, as_tensors, classes, suite


def explained(seed, size, flavour="smooth", right=0.7, count=3, widths=WIDTHS, spread=1.0):
    """Activations with relevance: ``right`` of the predictions are the labels, paths scatter about their class's."""
    rng = np.random.default_rng(seed)
    labels = classes(seed, size, count)
    predictions = np.where(rng.random(size) < right, labels, rng.integers(count, size=size))
    layers = suite(seed, size, flavour, widths, spread)
    leanings = np.random.default_rng(99)
    relevance = {}
    for name, width in widths.items():
        lean = leanings.normal(size=(count, 2, width))
        values = lean[predictions, rng.integers(2, size=size)] + 0.7 * rng.standard_normal((size, width))
        if flavour == "ties":
            values = np.round(values)
        relevance[name] = values.astype(np.float32)
    return nc.Activations(
        as_tensors(layers), torch.from_numpy(labels), torch.from_numpy(predictions), as_tensors(relevance)
    )


class BruteForce:
    """NPC from its definition: Python sets, loops and float64."""

    def __init__(self, training, alpha, beta, clusters, buckets, mode="structure", upper=None):
        self.alpha, self.clusters, self.buckets, self.mode = alpha, clusters, buckets, mode
        self.names = list(training.layers)
        labels, predictions = training.labels.tolist(), training.predictions.tolist()
        self.classes = sorted(set(labels))
        self.abstract, self.members = {}, {}
        for label in self.classes:
            rows = [i for i in range(training.size) if labels[i] == label == predictions[i]]
            if not rows:
                continue
            paths = [self.path(training, i) for i in rows]
            bits = np.array([[(n, j) in path for n, j in self.neurons(training)] for path in paths])
            found = clusters_of(bits, clusters)
            for k in sorted(set(found)):
                inside = [path for path, c in zip(paths, found, strict=True) if c == k]
                everywhere = set().union(*inside)
                share = {x: sum(x in path for path in inside) / len(inside) for x in everywhere}
                self.abstract.setdefault(label, {})[k] = {x for x in everywhere if share[x] >= beta}
                self.members[label, k] = [i for i, c in zip(rows, found, strict=True) if c == k]
        self.training = training
        if mode == "activation":
            self.upper = dict.fromkeys(self.names, upper) if upper else self.largest_distances()
        self.covered = set()

    def neurons(self, batch):
        return [(name, j) for name in self.names for j in range(batch.layers[name].shape[1])]

    def path(self, batch, i):
        return {(name, j) for name in self.names for j in critical(batch.relevance[name][i].tolist(), self.alpha)}

    def layer(self, path, name):
        return {j for n, j in path if n == name}

    def nearest(self, path, label):
        def likeness(k):
            theirs = self.abstract[label][k]
            return np.mean([jaccard(self.layer(path, name), self.layer(theirs, name)) for name in self.names])

        best = max(likeness(k) for k in self.abstract[label])
        return min(k for k in self.abstract[label] if likeness(k) == best)

    def distance(self, batch, i, label, k, name, leaving_out=None):
        neurons = sorted(self.layer(self.abstract[label][k], name))
        mine = batch.layers[name][i].double().numpy()[neurons]
        others = [m for m in self.members[label, k] if m != leaving_out]
        theirs = [self.training.layers[name][m].double().numpy()[neurons] for m in others]
        return min((np.sqrt(((mine - other) ** 2).sum()) for other in theirs), default=None)

    def largest_distances(self):
        largest = dict.fromkeys(self.names, 0.0)
        for (label, _), rows in self.members.items():
            for i in rows:
                k = self.nearest(self.path(self.training, i), label)
                for name in self.names:
                    distance = self.distance(self.training, i, label, k, name, leaving_out=i)
                    if distance is not None:
                        largest[name] = max(largest[name], distance)
        return largest

    def cells(self, batch, i):
        label = int(batch.predictions[i])
        path = self.path(batch, i)
        if label not in self.abstract:
            return None
        if self.mode == "structure":
            return {(label, k, self.bucket(jaccard(path, theirs))) for k, theirs in self.abstract[label].items()}
        k = self.nearest(path, label)
        found = set()
        for name in self.names:
            distance, upper = self.distance(batch, i, label, k, name), self.upper[name]
            if upper > 0 and distance <= upper:
                found.add((label, k, name, self.bucket(distance / upper)))
        return found

    def bucket(self, share):
        return min(int(np.floor(share * self.buckets)), self.buckets - 1)

    def observe(self, batch):
        for i in range(batch.size):
            self.covered |= self.cells(batch, i) or set()

    @property
    def all_cells(self):
        layers = len(self.names) if self.mode == "activation" else 1
        return len(self.classes) * self.clusters * layers * self.buckets

    @property
    def value(self):
        return len(self.covered) / self.all_cells


def jaccard(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def measured(criterion, training, tests, batch=None):
    coverage = nc.Coverage.of_layers(training.layout.widths, [criterion])
    coverage.calibrate(activations=training)
    for start in range(0, tests.size, batch or max(1, tests.size)):
        coverage.update(activations=tests.take(slice(start, start + (batch or tests.size))))
    return coverage


def unused(coverage):
    """The value, whatever there is to warn of."""
    return next(iter(coverage.values(warn=False).values()))
