"""Test sets as they are, and shifted at two strengths: images corrupted, words replaced, rows with noise."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.named_subjects import IMAGES, TEXTS
from neuralcov_lab.experiments.suites import SubstitutedWords

NOMINAL = "nominal"
STRENGTHS = {NOMINAL: 0, "shifted": 1, "shifted more": 2}
_REPLACED = (0.0, 0.1, 0.3)
_ROW_NOISE = (0.0, 0.25, 0.5)


def shifted(context: ExperimentContext, kind: str, samples: Samples, strength: int) -> Samples:
    """Return the samples shifted, with the same labels; strength 0 leaves them as they are."""
    if not strength:
        return samples
    # Drawn on the CPU, so that a set is the same wherever networks run.
    random = torch.Generator().manual_seed(context.combined_seed(211, strength))
    if kind == TEXTS:
        made = SubstitutedWords(samples, len(samples), _REPLACED[strength], 1000, context.combined_seed(211, strength))
        return replace(samples, inputs=torch.cat([batch["tokens"] for batch in made]))
    if kind == IMAGES:
        images = corrupted(samples.pixels().cpu(), strength, random)
        return replace(samples, inputs=images.to(samples.inputs.device))
    rows = samples.pixels().cpu()
    noise = torch.randn(rows.shape, generator=random)
    return replace(samples, inputs=(rows + _ROW_NOISE[strength] * rows.std(0) * noise).to(samples.inputs.device))


def corrupted(pixels: Tensor, strength: int, random: torch.Generator) -> Tensor:
    """Corrupt every image in one of four ways drawn at random: noise, contrast, brightness, blur."""
    white = torch.randn(pixels.shape, generator=random, device=pixels.device)
    mean = pixels.mean((1, 2, 3), keepdim=True)
    blurred = pixels
    for _ in range(2 * strength - 1):
        blurred = torch.nn.functional.avg_pool2d(
            torch.nn.functional.pad(blurred, (1, 1, 1, 1), mode="replicate"), 3, stride=1
        )
    ways = (
        pixels + 0.06 * strength * white,
        mean + (pixels - mean) * (0.6, 0.35)[strength - 1],
        pixels + 0.15 * strength,
        blurred,
    )
    chosen = torch.randint(len(ways), (len(pixels),), generator=random, device=pixels.device)
    return torch.stack(ways)[chosen, torch.arange(len(pixels), device=pixels.device)].clamp(0, 1)
