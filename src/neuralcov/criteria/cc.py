"""CC, cluster coverage: into how many clusters of a given reach the outputs of every layer fall."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from neuralcov.core import checks
from neuralcov.core.activations import Activations, Stack
from neuralcov.core.criterion import (
    DUPLICATE_FREE,
    NEVER_FALLS,
    SPLIT_FREE,
    Criterion,
    State,
    counted,
    no_counts,
    not_finite,
    widths_of,
)
from neuralcov.core.greedy import Clusters, Reach, covered_by_all, offer_all
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class CCState(State, name="cc"):
    """Cluster centres per group of layers."""

    clusters: tuple[Clusters, ...]


@dataclass(frozen=True, eq=False)
class CC(Criterion[CCState]):
    r"""Cluster coverage (Odena et al., TensorFuzz, ICML 2019).

    In each layer, inputs in order: one opens a cluster when its Euclidean distance to every centre so far
    exceeds ``distance``; the first opens one.

    .. math:: \text{CC} = \sum_l |\text{clusters of layer } l|

    Comparisons are exact, in float64. Depends on the order of inputs, not on how they are batched. Merging
    offers the other suite's centres, in order, to this one's.

    Args:
        distance: how far a cluster reaches.
        squared: compare squared distances with ``distance`` instead, as TensorFuzz does.

    Example:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.CC(5)])
        >>> cov.update(activations={"fc": torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.1]])})
        >>> cov.values()
        {'CC(5)': 2.0}
    """

    distance: float = 10
    squared: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        checks.number(self, "distance", at_least=0)
        checks.flag(self, "squared")

    @property
    def promises(self) -> frozenset[str]:
        """All but those that order decides."""
        return frozenset({NEVER_FALLS, SPLIT_FREE, DUPLICATE_FREE})

    def init(self, layout: Layout) -> CCState:
        """No cluster anywhere."""
        clusters = tuple(Clusters.empty(len(group), group.width, layout.device) for group in layout.groups)
        return CCState(no_counts(layout), widths_of(layout), clusters)

    def observe(self, state: CCState, batch: Activations, *, donate: bool = False) -> CCState:
        """Let the inputs open clusters in order."""
        values, valid = [stack.values for stack in batch.stacks], [_valid(stack) for stack in batch.stacks]
        clusters, _ = offer_all(state.clusters, values, valid, self._reach())
        return CCState(state.counts + batch.tally, state.widths, clusters)

    def merge(self, a: CCState, b: CCState) -> CCState:
        """The second's centres, in order, offered to the first."""
        centres, live = [c.centres.transpose(0, 1) for c in b.clusters], [c.live().T for c in b.clusters]
        clusters, _ = offer_all(a.clusters, centres, live, self._reach())
        return CCState(a.counts + b.counts, a.widths, clusters)

    def value(self, state: CCState) -> Float[Tensor, ""]:
        """Number of clusters."""
        return torch.stack([c.count.sum() for c in state.clusters]).sum().double()

    def by_layer(self, state: CCState) -> Float[Tensor, "layers"]:
        """Number of clusters of each layer."""
        return in_execution_order(state.widths, [c.count.double() for c in state.clusters])

    def gain(self, state: CCState, batch: Activations) -> Float[Tensor, "batch"]:
        """In how many layers each input would open a cluster."""
        opened = torch.zeros(batch.size, dtype=torch.float64, device=batch.device)
        covered = covered_by_all(state.clusters, [stack.values for stack in batch.stacks], self._reach())
        for reached, stack in zip(covered, batch.stacks, strict=True):
            opened += (_valid(stack) & ~reached).sum(1)
        return opened

    def admit(
        self, state: CCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], CCState]:
        """In order, inputs that open a cluster; the others change nothing, so that all can be offered together."""
        if not 0 <= min_gain < 1:
            return super().admit(state, batch, min_gain=min_gain)
        values, valid = [stack.values for stack in batch.stacks], [_valid(stack) for stack in batch.stacks]
        clusters, opened = offer_all(state.clusters, values, valid, self._reach())
        counts = counted(state.counts, opened, self.exclusions(batch))
        return opened, CCState(counts, state.widths, clusters)

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Inputs that are not finite; any other lies somewhere."""
        return not_finite(batch)

    def _reach(self) -> Reach:
        return Reach(float(self.distance), self.squared)


def _valid(stack: Stack) -> Bool[Tensor, "batch layers"]:
    if stack.counted is not None:
        return stack.counted
    return torch.ones(stack.values.shape[:2], dtype=torch.bool, device=stack.values.device)
