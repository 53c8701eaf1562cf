"""SNAC, strong neuron activation coverage: neurons pushed beyond the top of their training range."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.kernels.stacks import tick_beyond
from neuralcov.statistics.ranges import NeuronRanges, Ranges
from neuralcov.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class SNAC(BitmapCriterion):
    """Strong neuron activation coverage (Ma et al., DeepGauge, ASE 2018).

        SNAC = neurons with some a > hi / N

    with ``hi`` the largest output of each neuron over the training data.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.SNAC()])
        >>> cov.calibrate(activations={"fc": torch.tensor([[0.0, 0.0], [1.0, 1.0]])})
        >>> cov.update(activations={"fc": torch.tensor([[2.0, -1.0]])})
        >>> cov.values()
        {'SNAC': 0.5}
    """

    @property
    @override
    def learns(self) -> frozenset[Statistic[NeuronRanges]]:
        return frozenset({Ranges()})

    @override
    def hits(self, stack: Stack) -> Bool[Tensor, "batch layers width"]:
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        # A neuron never reached in training has no range to be above.
        return (stack.values > high) & (low <= high)

    @override
    def tick(self, stack: Stack, ticks: Bool[Tensor, "layers width *cells"]) -> bool:
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        tick_beyond(stack.values, stack.valid_mask(), low, high, ticks)
        return True
