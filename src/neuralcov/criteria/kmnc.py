"""KMNC, k-multisection neuron coverage: how much of every neuron's training range a suite visits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool, Shaped
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.kernels.stacks import tick_sections
from neuralcov.statistics.ranges import NeuronRanges, Ranges
from neuralcov.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class KMNC(BitmapCriterion):
    """K-multisection neuron coverage (Ma et al., DeepGauge, ASE 2018).

        section(a) = min(⌊(a − lo) / (hi − lo) · K⌋, K − 1)    for lo ≤ a ≤ hi
        KMNC = sections covered / (K · N)

    with ``[lo, hi]`` the neuron's range over the training data. Outputs outside the range, and neurons
    that were constant in training, cover nothing. Sections are found in float64.

    Args:
        sections: K, the number of equal sections of each neuron's range.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 1}, [nc.KMNC(4)])
        >>> cov.calibrate(activations={"fc": torch.tensor([[0.0], [1.0]])})
        >>> cov.update(activations={"fc": torch.tensor([[0.1], [0.2], [1.0]])})
        >>> cov.values()
        {'KMNC(4)': 0.5}
    """

    sections: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number(self, "sections", at_least=1)

    @property
    @override
    def learns(self) -> frozenset[Statistic[NeuronRanges]]:
        return frozenset({Ranges()})

    @property
    @override
    def cells(self) -> int:
        return self.sections

    @override
    def hits(self, stack: Stack) -> Shaped[Tensor, "batch layers width"]:
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        values = stack.values.double()
        within = (values >= low) & (values <= high) & (high > low)
        place = torch.where(within, (values - low) / (high - low) * self.sections, -1)
        # Section 0 is cell 1; what lies nowhere becomes 0.
        section = place.floor_().clamp_(max=self.sections - 1).long().add_(1)
        return section.bool() if self.sections == 1 else section

    @override
    def tick(self, stack: Stack, ticks: Bool[Tensor, "layers width *cells"]) -> bool:
        if self.sections == 1:
            return False
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        tick_sections(stack.values, stack.valid_mask(), low, high, self.sections, ticks)
        return True
