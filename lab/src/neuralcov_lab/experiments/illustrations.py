"""``figures``: what the paper shows in pictures rather than numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov import CC, DSC, KMNC, LSC, LVC, MDSC, NBC, NC, NLC, SNAC, TKNC, TKNP, Coverage
from neuralcov_lab import zoo
from neuralcov_lab.experiments.attacks import attack
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import FULL, Scale
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import Subject, image_subject, seeds_of, trained
from neuralcov_lab.experiments.suites import PIXEL, NoisyCopies
from neuralcov_lab.experiments.toys import toy_two_neurons

NAME = "figures"
KINDS = ("vae", "cvae", "net_classifier")
ADDITIONS = ("outliers", "a new cluster", "points in the mass")
_BINS = 60
_SHOWN = 5


def plan(scale: Scale) -> list[Job]:
    """Four pictures' data; mutated images come with ``fuzz``."""
    network = scale.networks[0]
    wanted: list[tuple[str, Any, dict[str, Any], float]] = [
        ("density", density, {}, 2000),
        ("two-neurons", two_neurons, {}, 3 * scale.pictured),
        ("one-neuron", one_neuron, {"network": network}, 2 * scale.pictured),
        ("perturbations", perturbed_pictures, {"network": network}, _SHOWN * scale.cw_steps),
    ]
    return [
        Job(f"{NAME}.{name}", (NAME,), compute, parameters, work, rank=76, kind=f"figure {name}")
        for name, compute, parameters, work in wanted
    ]


def two_neurons(context: ExperimentContext) -> dict[str, Any]:
    """Return where a VAE, a conditional VAE and a classifier put inputs in the plane of their two last neurons."""
    found = {}
    for kind in KINDS:
        if context.scale.name != FULL.name:
            net, samples = toy_two_neurons(kind)
        else:
            net, samples = trained(kind, "mnist"), zoo.data("mnist", "test")
        some = samples.take(slice(0, context.scale.pictured)).to(context.device)
        net = net.to(context.device)
        with torch.no_grad():
            points = torch.cat([net.net(inputs) for inputs, _ in some.batches(context.scale.batch)])  # type: ignore[operator]
        found[kind] = {"points": _rounded(points), "labels": some.labels.tolist()}
    return {"networks": found}


def one_neuron(context: ExperimentContext, network: str) -> dict[str, Any]:
    """Return how one neuron's output is distributed over training inputs, test inputs and noisy copies."""
    subject, scale = image_subject(context, network), context.scale
    count = scale.pictured
    copies = NoisyCopies(seeds_of(context, subject.test, 0), count, scale.noises[0], PIXEL, scale.batch, 31)
    suites: dict[str, Any] = {
        "training": subject.train.take(slice(0, count)).batches(scale.batch),
        "test": subject.test.take(slice(0, count)).batches(scale.batch),
        "noisy copies": copies,
    }
    outputs = {name: _middle_layer(subject, batches) for name, batches in suites.items()}
    layer, training = outputs["training"]
    neuron = int(training.var(0).argmax())
    columns = {name: values[:, neuron] for name, (_, values) in outputs.items()}
    low = min(float(values.min()) for values in columns.values())
    high = max(float(values.max()) for values in columns.values())
    return {
        "layer": layer,
        "neuron": neuron,
        "range": [low, high],
        "counts": {
            name: torch.histc(values.float().cpu(), _BINS, low, high).int().tolist() for name, values in columns.items()
        },
    }


def _middle_layer(subject: Subject, batches: Any) -> tuple[str, Tensor]:
    coverage = Coverage(subject.model, [NC()])
    parts = []
    with coverage.tap():
        for inputs, _ in batches:
            layers = coverage.run(inputs, predictions=False)[0].layers
            name = list(layers)[len(layers) // 2]
            parts.append(layers[name])
    return name, torch.cat(parts)


def density(context: ExperimentContext) -> dict[str, Any]:
    """Return how criteria respond to outliers, a new cluster and points in the mass of a cloud of two neurons.

    As in the paper, outliers and cluster lie within the range of each neuron: what is new is that the two are far out
    together.
    """
    random = torch.Generator().manual_seed(context.seed)
    cloud = torch.randn(1000, 2, generator=random)
    reach = 0.85 * torch.minimum(cloud.amax(0), -cloud.amin(0))
    corners = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).repeat(13, 1)[:50]
    added = {
        "outliers": corners * reach + 0.15 * torch.randn(50, 2, generator=random),
        "a new cluster": torch.tensor([1, -1]) * reach + 0.1 * torch.randn(50, 2, generator=random),
        "points in the mass": 0.3 * torch.randn(50, 2, generator=random),
    }
    added = {name: points.clamp(cloud.amin(0), cloud.amax(0)) for name, points in added.items()}
    coverage = Coverage.of_layers({"layer": 2}, _plane_settings())
    with quiet():
        coverage.calibrate(activations={"layer": cloud}, predictions=_sides(cloud))
        coverage.update(activations={"layer": cloud}, predictions=_sides(cloud))
        before, start = coverage.values(), coverage.snapshot()
        responses = {}
        for name in ADDITIONS:
            coverage.restore(start)
            coverage.update(activations={"layer": added[name]}, predictions=_sides(added[name]))
            responses[name] = {criterion: value - before[criterion] for criterion, value in coverage.values().items()}
    return {
        "cloud": _rounded(cloud),
        "added": {name: _rounded(points) for name, points in added.items()},
        "before": before,
        "responses": responses,
    }


def _plane_settings() -> list[AnyCriterion]:
    """Settings that suit two neurons of unit scale."""
    return [
        *(NC(0.75), KMNC(100), NBC(), SNAC(), TKNC(1), TKNP(1), CC(1), LSC(1), DSC(0.1), MDSC(1)),
        *(NLC(), NLC(rule="all"), LVC()),
    ]


def _sides(points: Tensor) -> Tensor:
    """Return a class for each point, by the side it lies on, for criteria that need classes."""
    return (points[:, 0] > 0).long()


def perturbed_pictures(context: ExperimentContext, network: str) -> dict[str, Any]:
    """Return a few test images, noisy and attacked, and what was added, enlarged."""
    subject, scale = image_subject(context, network), context.scale
    clean = subject.test.take(context.rows(len(subject.test), _SHOWN, 37))
    copies = NoisyCopies(clean, len(clean), scale.noises[0], PIXEL, len(clean), 41)
    mean = torch.tensor(clean.mean or (0.0,), device=context.device).reshape(1, -1, 1, 1)
    std = torch.tensor(clean.std or (1.0,), device=context.device).reshape(1, -1, 1, 1)
    moved = {"noise": next(iter(copies))[0] * std + mean}
    for method in ("PGD", "CW"):
        moved[method] = attack(subject.model, clean, method, scale, context.seed).samples.inputs
    pixels = clean.pixels()
    pictures = {"clean": _bytes(pixels)}
    for name, images in moved.items():
        change = images - pixels
        pictures[name] = _bytes(images)
        largest = change.abs().amax((1, 2, 3), keepdim=True).clamp(min=1 / 255)
        pictures[f"{name}: what was added"] = _bytes(0.5 + change / (2 * largest))
    return {"pictures": pictures}


def _bytes(pixels: Tensor) -> list[Any]:
    return list((pixels.clamp(0, 1) * 255).round().to(torch.uint8).cpu().tolist())


def _rounded(points: Tensor) -> list[list[float]]:
    return [[round(x, 3), round(y, 3)] for x, y in points.cpu().tolist()]
