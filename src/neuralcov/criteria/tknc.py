"""TKNC, top-k neuron coverage: neurons that were ever among the k strongest of their layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.kernels.operations import among_top_k


@dataclass(frozen=True, eq=False)
class TKNC(BitmapCriterion):
    """Top-k neuron coverage (Ma et al., DeepGauge, ASE 2018).

        TKNC = neurons among the k largest of their layer for some input / N

    Equal outputs go to the lower index. A layer of at most ``k`` neurons is covered by any input.

    Args:
        k: how many neurons of each layer count as its strongest.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 4}, [nc.TKNC(1)])
        >>> cov.update(activations={"fc": torch.tensor([[1.0, 3.0, 3.0, 2.0], [1.0, 0.0, 0.0, 0.0]])})
        >>> cov.values()
        {'TKNC(1)': 0.5}
    """

    k: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number(self, "k", at_least=1)

    @override
    def hits(self, stack: Stack) -> Bool[Tensor, "batch layers width"]:
        return among_top_k(stack.values, self.k)
