"""TKNP, top-k neuron patterns: how many different combinations of strongest neurons a suite shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.criterion import NEVER_FALLS, State
from neuralcov.core.layout import Layout
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Int
from neuralcov.criteria.distinct import DistinctCriterion
from neuralcov.criteria.older_sets import Patterns
from neuralcov.kernels.hashing import set_keys
from neuralcov.kernels.operations import among_top_k


@dataclass(frozen=True, eq=False)
class TKNP(DistinctCriterion):
    """Top-k neuron patterns (Ma et al., DeepGauge, ASE 2018).

        TKNP = number of distinct patterns (top_k of layer 1, …, top_k of layer L)

    An input's pattern is the tuple over layers of the *set* of its k strongest neurons, equal outputs to
    the lower index. Patterns are counted by 128-bit keys: two different ones among a million share a key
    with a probability below 10⁻²⁶. Steps past an input's end read as zeros.

    Args:
        k: how many neurons of each layer make its part of the pattern.
        sketch: keep only so many patterns, those of smallest key, in 24 bytes each: the value is then an estimate with
            a relative error of about 1/√sketch, and exact below so many. For suites of more than 10⁷ inputs.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.TKNP(2)])
        >>> cov.update(activations={"fc": torch.tensor([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [1.0, 2.0, 3.0]])})
        >>> cov.values()
        {'TKNP(2)': 2.0}
    """

    k: int = 10
    sketch: int | None = field(default=None, kw_only=True)

    hashed = True
    prepared = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number(self, "k", at_least=1)
        if self.sketch is not None:
            checks.whole_number(self, "sketch", at_least=16)

    @property
    @override
    def kept(self) -> int | None:
        return self.sketch

    @property
    @override
    def promises(self) -> frozenset[str]:
        # Every new pattern counts 1 and lowers the limit, so that the estimate never falls.
        return super().promises | {NEVER_FALLS}

    @override
    def kinds(self, batch: Activations) -> Int[Tensor, "batch 1 2"]:
        keys = torch.zeros(batch.size, 2, dtype=torch.int64, device=batch.device)
        for stack in batch.stacks:
            for rows in blocks(batch.size, stack.values.shape[1:].numel(), batch.device):
                keys[rows] += set_keys(among_top_k(stack.values[rows], self.k), stack.positions).sum(1)
        return keys[:, None]

    @override
    def older_forms(self, layout: Layout) -> tuple[State, ...]:
        return (Patterns.empty(layout),)

    @override
    def upgrade(self, learnt: Any, state: Any, layout: Layout) -> tuple[Any, Any]:
        return learnt, state.as_distinct() if isinstance(state, Patterns) else state
