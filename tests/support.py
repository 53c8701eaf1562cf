"""Suites as NumPy arrays, and one way to run a criterion over them, for tests against brute force."""

import warnings

import numpy as np
import torch

import neuralcov as nc

FLAVOURS = ("smooth", "ties", "rectified", "scaled", "constant")
WIDTHS = {"a": 5, "b": 1, "c": 7, "d": 5}


def suite(seed, size, flavour="smooth", widths=WIDTHS, spread=1.0):
    """Float32 outputs per layer, of one flavour."""
    rng = np.random.default_rng(seed)
    layers = {}
    for name, width in widths.items():
        values = spread * rng.standard_normal((size, width))
        if flavour == "ties":
            values = np.round(2 * values)
        elif flavour == "rectified":
            values = np.maximum(values, 0)
        elif flavour == "scaled":
            values = values * 1e4 + 5e4 if name == "a" else values * 1e-3
        elif flavour == "constant" and name == "c":
            values = np.full_like(values, 0.5)
        layers[name] = values.astype(np.float32)
    return layers


def classes(seed, size, count=3):
    """Labels in which every class occurs once there are enough inputs."""
    return np.random.default_rng(seed).permutation(np.arange(size) % count)


def covered(criterion, tests, training=None, batch=None, **extra):
    """A coverage of ``criterion`` calibrated on ``training`` that has observed ``tests`` in batches."""
    widths = {name: values.shape[1] for name, values in tests.items()}
    coverage = nc.Coverage.of_layers(widths, [criterion])
    if training is not None:
        coverage.calibrate(activations=training, **extra.pop("calibrate", {}))
    size = len(next(iter(tests.values())))
    for start in range(0, size, batch or max(size, 1)):
        rows = slice(start, start + (batch or size))
        part = {name: values[rows] for name, values in tests.items()}
        coverage.update(activations=part, **{name: values[rows] for name, values in extra.items()})
    return coverage


def value_of(criterion, tests, training=None, batch=None, **extra):
    """The value of ``criterion`` on a suite."""
    coverage = covered(criterion, tests, training, batch, **extra)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        return coverage.values()[criterion.name]


def layer_values(criterion, tests, training=None, **extra):
    """The value of each layer."""
    return {row.layer: row.values[criterion.name] for row in covered(criterion, tests, training, **extra).by_layer()}


def as_tensors(layers):
    return {name: torch.from_numpy(values) for name, values in layers.items()}
