"""TKNP, top-k neuron patterns: how many different combinations of strongest neurons a suite shows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.counts import count_admitted, no_counts, not_finite
from neuralcov.core.criterion import ALL_PROMISES, Criterion, State, widths_of
from neuralcov.core.layout import Layout
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.distinct import KeySet
from neuralcov.kernels.hashing import set_keys
from neuralcov.kernels.operations import among_top_k


@dataclass(frozen=True, eq=False)
class Patterns(State, name="patterns"):
    """The keys of the patterns seen."""

    seen: KeySet


@dataclass(frozen=True, eq=False)
class TKNP(Criterion[Patterns]):
    r"""Top-k neuron patterns (Ma et al., DeepGauge, ASE 2018).

    .. math:: \text{TKNP} = \bigl|\{(\operatorname{top}_k(l_1, x), \dots, \operatorname{top}_k(l_L, x)) : x\}\bigr|

    An input's pattern is the tuple over layers of the *set* of its k strongest neurons, equal outputs to
    the lower index. Patterns are counted by 128-bit keys: two different ones among a million share a key
    with a probability below 10⁻²⁶. Steps past an input's end read as zeros.

    Args:
        k: how many neurons of each layer make its part of the pattern.

    Example:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.TKNP(2)])
        >>> cov.update(activations={"fc": torch.tensor([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [1.0, 2.0, 3.0]])})
        >>> cov.values()
        {'TKNP(2)': 2.0}
    """

    k: int = 10

    def __post_init__(self) -> None:
        checks.whole_number(self, "k", at_least=1)

    @property
    def promises(self) -> frozenset[str]:
        """A set keeps them all."""
        return ALL_PROMISES

    def init(self, layout: Layout) -> Patterns:
        """No pattern seen."""
        return Patterns(no_counts(layout), widths_of(layout), KeySet.empty(layout.device))

    def observe(self, state: Patterns, batch: Activations, *, donate: bool = False) -> Patterns:
        """Add the patterns of the batch."""
        return Patterns(
            state.counts + batch.input_counts, state.widths, state.seen.add(self._keys(batch), batch.finite)
        )

    def merge(self, a: Patterns, b: Patterns) -> Patterns:
        """Patterns of either."""
        return Patterns(a.counts + b.counts, a.widths, a.seen.union(b.seen))

    def value(self, state: Patterns) -> Float[Tensor, ""]:
        """Number of patterns."""
        return torch.full((), len(state.seen), dtype=torch.float64, device=state.counts.device)

    def gain(self, state: Patterns, batch: Activations) -> Float[Tensor, "batch"]:
        """1 for an input with a new pattern."""
        return (batch.finite & ~state.seen.contains(self._keys(batch))).double()

    def admit(
        self, state: Patterns, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], Patterns]:
        """In order, inputs whose pattern is new to the state and to the inputs before them."""
        if min_gain < 0:
            return super().admit(state, batch, min_gain=min_gain)
        keys = self._keys(batch)
        admitted = state.seen.firsts(keys, batch.finite & (min_gain < 1))
        counts = count_admitted(state.counts, admitted, self.exclusions(batch))
        return admitted, Patterns(counts, state.widths, state.seen.add(keys, admitted))

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Inputs that are not finite; any other has a pattern."""
        return not_finite(batch)

    def _keys(self, batch: Activations) -> Int[Tensor, "batch 2"]:
        return batch.shared(("pattern keys", self.k), lambda: self._compute_keys(batch))

    def _compute_keys(self, batch: Activations) -> Int[Tensor, "batch 2"]:
        keys = torch.zeros(batch.size, 2, dtype=torch.int64, device=batch.device)
        for stack in batch.stacks:
            for rows in blocks(batch.size, stack.values.shape[1:].numel(), batch.device):
                keys[rows] += set_keys(among_top_k(stack.values[rows], self.k), stack.positions).sum(1)
        return keys
