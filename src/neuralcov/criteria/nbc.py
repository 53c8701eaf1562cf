"""NBC, neuron boundary coverage: neurons pushed beyond either end of their training range."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool, Int
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.kernels.stacks import tick_beyond
from neuralcov.statistics.ranges import NeuronRanges, Ranges
from neuralcov.statistics.statistic import Statistic


@dataclass(frozen=True, eq=False)
class NBC(BitmapCriterion):
    """Neuron boundary coverage (Ma et al., DeepGauge, ASE 2018).

        NBC = (neurons with some a > hi + neurons with some a < lo) / (2 · N)

    over all inputs, with ``[lo, hi]`` each neuron's range over the training data.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.NBC()])
        >>> cov.calibrate(activations={"fc": torch.tensor([[0.0, 0.0], [1.0, 1.0]])})
        >>> cov.update(activations={"fc": torch.tensor([[2.0, -1.0], [0.5, 2.0]])})
        >>> cov.values()
        {'NBC': 0.75}
    """

    @property
    @override
    def learns(self) -> frozenset[Statistic[NeuronRanges]]:
        return frozenset({Ranges()})

    @property
    @override
    def cells(self) -> int:
        return 2

    @override
    def hits(self, stack: Stack) -> Int[Tensor, "batch layers width"]:
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        # A neuron never reached in training has no corners.
        values, reached = stack.values, low <= high
        return ((values > high) & reached).long() + 2 * ((values < low) & reached).long()

    @override
    def tick(self, stack: Stack, ticks: Bool[Tensor, "layers width *cells"]) -> bool:
        ranges: NeuronRanges = self.require_learnt()
        low, high = stack.pick(ranges.low), stack.pick(ranges.high)
        tick_beyond(stack.values, stack.valid_mask(), low, high, ticks)
        return True
