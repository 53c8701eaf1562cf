"""NC, neuron coverage: the share of neurons that were ever among the strongest of their layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.kernels.stacks import tick_scaled


@dataclass(frozen=True, eq=False)
class NC(BitmapCriterion):
    """Neuron coverage (Pei et al., DeepXplore, SOSP 2017).

        s = (a − min a) / (max a − min a)
        NC = neurons with s > threshold for some input / N

    Each input's outputs are scaled to [0, 1] within their layer; a constant layer scales to 0. Scaling
    and comparison are done in float64.

    Args:
        threshold: what the scaled output must exceed, in [0, 1).

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 4}, [nc.NC(0.5)])
        >>> cov.update(activations={"fc": torch.tensor([[0.0, 1.0, 0.6, 0.2]])})
        >>> cov.values()
        {'NC(0.5)': 0.5}
    """

    threshold: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(self, "threshold", at_least=0, below=1)

    @override
    def hits(self, stack: Stack) -> Bool[Tensor, "batch layers width"]:
        least, most = (bound.double()[:, :, None] for bound in stack.extremes())
        # A constant layer divides 0 by 0 to NaN, which exceeds nothing.
        return stack.values.double().sub(least).div_(most - least) > self.threshold

    @override
    def tick(self, stack: Stack, ticks: Bool[Tensor, "layers width"]) -> bool:
        tick_scaled(stack.values, stack.valid_mask(), stack.extremes(), self.threshold, ticks)
        return True
