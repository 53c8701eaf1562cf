"""Traces and brute-force helpers that the tests of the three surprise criteria share."""

import math

import numpy as np

import neuralcov as nc


def traces(seed, size, width=6, classes=3, flavour="smooth"):
    """Traces around class means, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) % classes)
    means = 2 * np.random.default_rng(99).standard_normal((classes, width))
    rows = means[labels] + rng.standard_normal((size, width))
    if flavour == "ties":
        rows = np.round(rows)
    if flavour == "offset":
        rows = rows + 1000
    return rows.astype(np.float32), labels


def fitted(criterion, training, labels, **extra):
    """A coverage calibrated on traces, predicted as labelled unless said otherwise."""
    coverage = nc.Coverage.of_layers({"a": training.shape[1]}, [criterion])
    extra.setdefault("predictions", labels)
    coverage.calibrate(activations={"a": training}, labels=labels, **extra)
    return coverage


def scores(coverage, tests, labels, **extra):
    extra.setdefault("predictions", labels)
    (found,) = coverage.scores(activations={"a": tests}, labels=labels, **extra).values()
    return found.numpy()


def value(coverage, tests, labels):
    coverage.update(activations={"a": tests}, labels=labels, predictions=labels)
    return next(iter(coverage.values(warn=False).values()))


def buckets(surprises, width):
    return len({math.floor(s / width) for s in surprises if not math.isnan(s)})
