"""Batches, LCC measured, and its brute force by layer."""

import torch

import neuralcov as nc
from neuralcov.testing.oracles.kinds import Layer

WIDTHS = {"conv": 5, "norm": 5, "hidden": 3, "fc": 4, "one": 1}


def batch(seed, size, *, decisions=True, spread=1.0, flavour="smooth"):
    generator = torch.Generator().manual_seed(seed)
    layers = {name: spread * torch.randn(size, width, generator=generator) for name, width in WIDTHS.items()}
    if flavour == "rectified":
        layers = {name: outputs.relu() for name, outputs in layers.items()}
    if flavour == "constant":
        layers["hidden"] = torch.full_like(layers["hidden"], 0.1)
    classes = torch.randint(0, 4, (size,), generator=generator)
    return nc.Activations(layers, predictions=classes if decisions else None)


def oracle(training, **settings):
    """Every layer by brute force."""
    decisions = None if training.predictions is None else training.predictions.tolist()
    folds = training.folds(10).tolist()
    return {
        name: Layer(name, outputs.numpy(), decisions, folds, **settings) for name, outputs in training.layers.items()
    }


def kinds_by_layer(layers, suite):
    decisions = [None] * suite.size if suite.predictions is None else suite.predictions.tolist()
    return {
        name: [layer.kind(row, decisions[i]) for i, row in enumerate(suite.layers[name].numpy())]
        for name, layer in layers.items()
        if layer.counts
    }


def measured(criterion, training, *suites):
    coverage = nc.Coverage.of_layers(training.layout.widths, [criterion])
    coverage.calibrate(activations=training)
    for suite in suites:
        coverage.update(activations=suite)
    return coverage
