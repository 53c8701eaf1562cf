"""Features of real and of generated images, as the Fréchet Inception distance (Heusel et al., 2017) compares them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from neuralcov.fuzz.faults.quality import Gaussian, gaussian_of
from neuralcov.sources.samples import Samples
from neuralcov_lab.networks import Generator, Inception

_BATCH = 250


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
