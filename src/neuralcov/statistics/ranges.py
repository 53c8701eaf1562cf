"""The smallest and largest output of every neuron over the training data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Float


@dataclass(frozen=True, eq=False)
class Ranges(Record, name="ranges"):
    """Per group of layers ``low`` and ``high``, ``(layers, width)`` float64.

    A neuron no input has reached (a time step past every input's end) has ``low > high``.
    """

    low: tuple[Float[Tensor, "_layers _width"], ...]
    high: tuple[Float[Tensor, "_layers _width"], ...]

    @classmethod
    def empty(cls, layout: Layout) -> Ranges:
        """Ranges of no input."""

        def filled(bound: float) -> tuple[Tensor, ...]:
            return tuple(
                torch.full((len(g), g.width), bound, dtype=torch.float64, device=layout.device) for g in layout.groups
            )

        return cls(filled(math.inf), filled(-math.inf))

    def observe(self, batch: Activations) -> Ranges:
        """Ranges that take in a batch as well."""
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
        return Ranges(tuple(low), tuple(high))
