"""The smallest and largest output of every neuron over the training data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Float
from neuralcov.core.side_by_side import SideBySide
from neuralcov.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class NeuronRanges(Record, name="ranges"):
    """Per group of layers ``low`` and ``high``, ``(layers, width)`` float64.

    A neuron no input has reached (a time step past every input's end) has ``low > high``.
    """

    low: tuple[Float[Tensor, "_layers _width"], ...]
    high: tuple[Float[Tensor, "_layers _width"], ...]

    @classmethod
    def empty(cls, layout: Layout) -> NeuronRanges:
        """Return ranges of no input."""

        def filled(bound: float) -> tuple[Tensor, ...]:
            return tuple(
                torch.full((len(g), g.width), bound, dtype=torch.float64, device=layout.device) for g in layout.groups
            )

        return cls(filled(math.inf), filled(-math.inf))

    def observe(self, batch: Activations) -> NeuronRanges:
        """Widen the ranges by a batch."""
        if batch.size == 0:
            return self
        low, high = [], []
        for stack, lo, hi in zip(batch.stacks, self.low, self.high, strict=True):
            if stack.valid is None:
                least, most = torch.aminmax(stack.values, dim=0)
            else:
                out = ~stack.valid[:, :, None]
                least = stack.values.masked_fill(out, math.inf).amin(0)
                most = stack.values.masked_fill(out, -math.inf).amax(0)
            low.append(torch.minimum(lo, least.double()))
            high.append(torch.maximum(hi, most.double()))
        return NeuronRanges(tuple(low), tuple(high))

    def joined(self, other: NeuronRanges, layers: SideBySide) -> NeuronRanges:
        """Return the ranges of the layers of both."""
        return NeuronRanges(layers.groups(self.low, other.low), layers.groups(self.high, other.high))


@dataclass(frozen=True)
class Ranges(Statistic[NeuronRanges], name="ranges"):
    """Gather the smallest and largest output of every neuron."""

    @override
    def init(self, layout: Layout) -> NeuronRanges:
        return NeuronRanges.empty(layout)

    @override
    def observe(self, gathered: NeuronRanges, batch: Activations) -> NeuronRanges:
        return gathered.observe(batch)
