"""Count, mean and scatter of layer outputs: the accumulator behind NLC, LVC and calibration.

Everything is float64. Batches are centred on their own mean before they are multiplied, and only then
joined to what came before, so that neither a large mean nor a long stream costs digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float
from neuralcov.kernels.operations import triton_available
from neuralcov.kernels.stacks import centred_rows
from neuralcov.statistics.statistic import BESIDE, Statistic


@dataclass(frozen=True, eq=False)
class LayerMoments(Record, name="moments"):
    """Moments of the layers of one width.

    ``scatter`` is Σᵢ (xᵢ − mean)(xᵢ − mean)ᵀ, the covariance times the count: it adds up over batches
    without being rescaled.
    """

    count: Float[Tensor, "layers"]
    mean: Float[Tensor, "layers width"]
    scatter: Float[Tensor, "layers width width"]

    @classmethod
    def empty(cls, layers: int, width: int, device: torch.device) -> LayerMoments:
        """Return moments of no input."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        return cls(zeros(layers), zeros(layers, width), zeros(layers, width, width))

    @property
    def width(self) -> int:
        """Return the neurons of each layer."""
        return self.mean.shape[1]

    @property
    def covariance(self) -> Float[Tensor, "layers width width"]:
        """Return covariances, divided by the count; zero before the first input."""
        return self.scatter / self.count.clamp(min=1)[:, None, None]

    def absorb(self, stack: Stack, *, donate: bool = False) -> LayerMoments:
        """Take in a batch. With ``donate`` this one is overwritten."""
        count, mean, rows = self.join(stack)
        out = self.scatter if donate else None
        return LayerMoments(count, mean, torch.baddbmm(self.scatter, rows.mT, rows, out=out))

    def merge(self, other: LayerMoments) -> LayerMoments:
        """Return the moments of two sets of inputs together."""
        count = self.count + other.count
        share = (other.count / count.clamp(min=1))[:, None]
        apart = other.mean - self.mean
        # n_a n_b / n is the weight of the distance between the two means; its root on both sides keeps symmetry.
        bridge = (self.count[:, None] * share).sqrt() * apart
        scatter = (self.scatter + other.scatter).addcmul_(bridge[:, :, None], bridge[:, None, :])
        return LayerMoments(count, self.mean + share * apart, scatter)

    def layer(self, index: int) -> LayerMoments:
        """Return the moments of one layer, as a group of its own that shares their memory."""
        one = slice(index, index + 1)
        return LayerMoments(self.count[one], self.mean[one], self.scatter[one])

    def replace_by(self, other: LayerMoments) -> None:
        """Overwrite these moments."""
        for ours, theirs in ((self.count, other.count), (self.mean, other.mean), (self.scatter, other.scatter)):
            ours.copy_(theirs)

    def merge_in(self, other: LayerMoments) -> LayerMoments:
        """Merge others into these, which are overwritten layer by layer, so that no second copy of all exists."""
        for index in range(len(self.count)):
            ours = self.layer(index)
            ours.replace_by(ours.merge(other.layer(index)))
        return self

    def choose(self, other: LayerMoments, where: Bool[Tensor, "layers"]) -> LayerMoments:
        """Return this one's layers where ``where`` holds, the other's elsewhere."""
        return LayerMoments(
            torch.where(where, self.count, other.count),
            torch.where(where[:, None], self.mean, other.mean),
            torch.where(where[:, None, None], self.scatter, other.scatter),
        )

    def join(self, stack: Stack) -> tuple[Tensor, Tensor, Tensor]:
        """Return new count and mean, and rows whose products, added to the scatter, give the new scatter.

        The rows are the centred batch and one more, √(n·n_B/(n+n_B))·(μ_B − μ), which carries the
        distance between the two means, so that a single product does the whole merge.
        """
        added = stack.counts()
        count = self.count + added
        rows, batch_mean = _centred(stack, added)
        apart = batch_mean - self.mean
        share = (added / count.clamp(min=1))[:, None]
        rows[-1] = (self.count[:, None] * share).sqrt() * apart
        return count, self.mean + share * apart, rows.transpose(0, 1)


def _centred(stack: Stack, added: Float[Tensor, "layers"]) -> tuple[Tensor, Tensor]:
    """Return the batch less its own mean, with room for one more row at the end, and that mean."""
    size, layers, width = stack.values.shape
    rows = torch.empty(size + 1, layers, width, dtype=torch.float64, device=stack.values.device)
    if triton_available(rows.device) and size:
        mean = stack.values.sum(0, dtype=torch.float64) / added.clamp(min=1)[:, None]
        centred_rows(stack.values, stack.valid, mean, rows)
        return rows, mean
    values = stack.values.double()
    mean = values.sum(0) / added.clamp(min=1)[:, None]
    torch.sub(values, mean, out=rows[:-1])
    if stack.valid is not None:
        rows[:-1].masked_fill_(~stack.valid[:, :, None], 0)
    return rows, mean


def empty_moments(layout: Layout) -> tuple[LayerMoments, ...]:
    """Return empty moments for every group of layers."""
    return tuple(LayerMoments.empty(len(group), group.width, layout.device) for group in layout.groups)


def absorb_all(
    moments: tuple[LayerMoments, ...], batch: Activations, *, donate: bool = False
) -> tuple[LayerMoments, ...]:
    """Take a batch into every group's moments."""
    return tuple(m.absorb(s, donate=donate) for m, s in zip(moments, batch.stacks, strict=True))


def merge_all(a: tuple[LayerMoments, ...], b: tuple[LayerMoments, ...]) -> tuple[LayerMoments, ...]:
    """Return every group's moments of two sets of inputs together."""
    return tuple(x.merge(y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Moments(Statistic[tuple[LayerMoments, ...]], name="moments"):
    """Gather count, mean and scatter of every layer, by group."""

    held_out = BESIDE

    @override
    def init(self, layout: Layout) -> tuple[LayerMoments, ...]:
        return empty_moments(layout)

    @override
    def observe(self, gathered: tuple[LayerMoments, ...], batch: Activations) -> tuple[LayerMoments, ...]:
        return absorb_all(gathered, batch, donate=True)
