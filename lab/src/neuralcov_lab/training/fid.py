"""The Fréchet Inception distance (Heusel et al., 2017) between images and images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.networks import Generator, Inception

_BATCH = 250


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Mean and covariance of features, in float64."""

    count: int
    mean: Tensor
    covariance: Tensor


def gaussian_of(features: Iterable[Tensor]) -> Gaussian:
    """The moments of features given in batches, each ``(batch, features)``; divided by n − 1."""
    count, total, products = 0, None, None
    for batch in features:
        wide = batch.double()
        count += wide.shape[0]
        total = wide.sum(0) if total is None else total + wide.sum(0)
        products = wide.T @ wide if products is None else products + wide.T @ wide
    if total is None or products is None or count < 2:
        raise InputError(f"{count} images: a Fréchet distance needs at least 2, and thousands to mean something")
    mean = total / count
    return Gaussian(count, mean, (products - count * torch.outer(mean, mean)) / (count - 1))


def frechet_distance(a: Gaussian, b: Gaussian) -> float:
    """``‖μa − μb‖² + tr(Σa + Σb − 2·(Σa·Σb)^½)``.

    >>> one = Gaussian(9, torch.zeros(2).double(), torch.eye(2).double())
    >>> round(frechet_distance(one, Gaussian(9, torch.ones(2).double(), 4 * torch.eye(2).double())), 9)
    4.0
    """
    # The product has the eigenvalues of √Σa·Σb·√Σa, which is symmetric and needs no complex numbers.
    values, vectors = torch.linalg.eigh(a.covariance)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    shared = torch.linalg.eigvalsh(root @ b.covariance.to(root.device) @ root).clamp(min=0).sqrt().sum()
    difference = (a.mean - b.mean.to(root.device)).square().sum()
    return float(difference + a.covariance.trace() + b.covariance.trace().to(root.device) - 2 * shared)


@torch.no_grad()
def gaussian_of_samples(network: Inception, samples: Samples, device: torch.device) -> Gaussian:
    """Of the features of real images."""
    rows = torch.split(torch.arange(len(samples)), _BATCH)
    return gaussian_of(network.of_pixels(samples.pixels(part).to(device)) for part in rows)


@torch.no_grad()
def gaussian_of_generator(network: Inception, generator: Generator, count: int, seed: int = 0) -> Gaussian:
    """Of the features of generated images, classes in turn, rounded to 256 levels like real ones."""
    device = next(generator.parameters()).device
    random = torch.Generator().manual_seed(seed)
    generator.eval()

    def features() -> Iterable[Tensor]:
        for rows in torch.split(torch.arange(count), _BATCH):
            images = generator.sample((rows % generator.num_classes).to(device), random)
            yield network.of_pixels(((images.float() + 1) * 127.5).round() / 255)

    return gaussian_of(features())
