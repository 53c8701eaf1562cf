"""Training inputs made ready in whole batches where the network runs: images changed at random, texts, rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from neuralcov.sources.samples import Samples
from neuralcov_lab.data.vocabulary import PADDING, UNKNOWN
from neuralcov_lab.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Hold all training images on the device, normalised and padded, ``(n, height, width, channels)``."""

    padded: Tensor
    crop: int
    flip: bool
    cutout: int

    @classmethod
    def of(cls, samples: Samples, recipe: Recipe, device: torch.device) -> TrainingImages:
        """Move samples to the device, as bfloat16 there where it computes in that."""
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        parts = []
        for rows in torch.split(torch.arange(len(samples)), 5000):
            pixels = samples.take(rows).to(device)
            images = pixels.prepare(pixels.pixels())
            parts.append(functional.pad(images, [recipe.crop] * 4).permute(0, 2, 3, 1).to(dtype))
        return cls(torch.cat(parts).contiguous(), recipe.crop, recipe.flip, recipe.cutout)

    def batch(self, rows: Tensor) -> Tensor:
        """Return some of the images, each changed at random, ``(batch, channels, height, width)``."""
        size, device = rows.shape[0], self.padded.device
        height, width = (length - 2 * self.crop for length in self.padded.shape[1:3])
        down, right = torch.arange(height, device=device), torch.arange(width, device=device)
        tops, lefts = torch.randint(0, 2 * self.crop + 1, (2, size, 1), device=device)
        columns = right.expand(size, width)
        if self.flip:
            mirrored = torch.rand(size, 1, device=device) < 0.5
            columns = torch.where(mirrored, width - 1 - columns, columns)
        images = self.padded[rows[:, None, None], (tops + down)[:, :, None], (lefts + columns)[:, None, :]]
        if self.cutout:
            images = images * ~self._squares(size, down, right)[..., None]
        # Channels lie last in memory, which is how convolutions on a GPU like them.
        return images.permute(0, 3, 1, 2)

    def _squares(self, size: int, down: Tensor, right: Tensor) -> Tensor:
        """Return ``(batch, height, width)``, true within a square around a random point of each image."""
        centres = torch.rand(2, size, 1, device=down.device)
        rows = (down - centres[0] * len(down)).abs() < self.cutout / 2
        columns = (right - centres[1] * len(right)).abs() < self.cutout / 2
        return rows[:, :, None] & columns[:, None, :]


@dataclass(frozen=True, eq=False)
class TrainingTexts:
    """Hold all training texts on the device."""

    tokens: Tensor
    dropout: float

    @classmethod
    def of(cls, samples: Samples, recipe: Recipe, device: torch.device) -> TrainingTexts:
        """Move samples to the device."""
        return cls(samples.inputs.to(device), recipe.word_dropout)

    def batch(self, rows: Tensor) -> Tensor:
        """Return some of the texts, with words made unknown at random."""
        tokens = self.tokens[rows].long()
        dropped = torch.rand(tokens.shape, device=tokens.device) < self.dropout
        return tokens.masked_fill(dropped & (tokens != PADDING), UNKNOWN)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Hold all rows of a table on the device, and hand them out as they are."""

    rows: Tensor

    def batch(self, rows: Tensor) -> Tensor:
        """Return some of the rows."""
        return self.rows[rows]


def training_inputs(
    samples: Samples, recipe: Recipe, device: torch.device
) -> TrainingImages | TrainingTexts | TrainingRows:
    """Return the training data in the form its kind calls for."""
    if samples.inputs.dim() == 4:
        return TrainingImages.of(samples, recipe, device)
    if samples.inputs.is_floating_point():
        return TrainingRows(samples.inputs.to(device))
    return TrainingTexts.of(samples, recipe, device)
