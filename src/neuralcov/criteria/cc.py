"""CC, cluster coverage: into how many clusters of a given radius the outputs of every layer fall.

Greedy clustering goes input by input: one opens a cluster unless a centre before it reaches it. Here a thousand inputs
are decided at once, with the same result:

1. Inputs that an old centre reaches open nothing. The others are candidates.
2. Among the candidates, ``near[i, j]`` says that the earlier j reaches i. Then i is a centre if and only if no earlier
   centre is near it. That rule is applied to all candidates at once, starting from "all are centres", until the answer
   stays. The first candidate is right from the start, and a candidate is right one round after all before it are, so
   that the answer is the greedy one; in practice it takes a few rounds.

Distances come from a matrix product in float64, |x|² + |y|² − 2xy. Where that lies so near the radius that rounding
could decide, the pair is measured by differences instead. On a GPU whether there is such a pair is looked at once for
1,024 inputs, together with whether the rounds have ended and how many centres there are: one wait serves all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.cost import Cost, Workload, tensor_bytes
from neuralcov.core.counts import count_admitted, no_counts, not_finite
from neuralcov.core.criterion import DUPLICATE_FREE, NEVER_FALLS, SPLIT_FREE, Criterion, State, widths_of
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.memory import blocks
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.side_by_side import SideBySide

_ROWS = 1024
_CENTRES = 4096
_ROUNDS = 8
_ROUNDING = 2.0**-53


@dataclass(frozen=True)
class Radius:
    """How far a cluster reaches: up to and including ``limit``, in distances or in their squares."""

    limit: float
    squared: bool

    @property
    def square(self) -> float:
        """Return the limit of squared distances."""
        return self.limit if self.squared else self.limit**2

    def holds(self, squares: Tensor) -> Tensor:
        """Return whether exact squared distances are within reach."""
        return (squares if self.squared else squares.sqrt()) <= self.limit


@dataclass(frozen=True, eq=False)
class Clusters(Record, name="clusters"):
    """Centres of the layers of one width; of layer i the first ``count[i]`` rows count."""

    centres: Float[Tensor, "layers capacity width"]
    count: Int[Tensor, "layers"]

    @classmethod
    def empty(cls, layers: int, width: int, device: torch.device) -> Clusters:
        """Return clusters without a centre."""
        centres = torch.empty(layers, 0, width, dtype=torch.float32, device=device)
        return cls(centres, torch.zeros(layers, dtype=torch.int64, device=device))

    def live(self) -> Bool[Tensor, "layers capacity"]:
        """Return which rows are centres."""
        return torch.arange(self.centres.shape[1], device=self.count.device) < self.count[:, None]


def offer_all(
    clusters: Sequence[Clusters],
    values: Sequence[Float[Tensor, "_ _ _"]],
    valid: Sequence[Bool[Tensor, "_ _"]],
    radius: Radius,
) -> tuple[tuple[Clusters, ...], Bool[Tensor, "batch"]]:
    """Return the clusters of every group after inputs came in order, and which inputs opened one in any layer.

    Waits for the device once for every 1,024 inputs.
    """
    longest = max((len(rows) for rows in values), default=0)
    opened = torch.zeros(longest, dtype=torch.bool, device=values[0].device)
    for start in range(0, longest, _ROWS):
        rows = slice(start, start + _ROWS)
        offers = [_ClusterBatch(c, v[rows], m[rows], radius) for c, v, m in zip(clusters, values, valid, strict=True)]
        sizes = torch.stack([offer.sizes for offer in offers]).tolist()
        clusters = [offer.finish(*size) for offer, size in zip(offers, sizes, strict=True)]
        for offer in offers:
            opened[start : start + len(offer.opened)] |= offer.opened
    return tuple(clusters), opened


def covered_by_all(
    clusters: Sequence[Clusters], values: Sequence[Float[Tensor, "batch _ _"]], radius: Radius
) -> list[Bool[Tensor, "batch _"]]:
    """Return, per group, whether an existing cluster reaches each input in each layer. Waits for the device once."""
    points = [rows.double().transpose(0, 1) for rows in values]
    found = [_covered(c, p, radius, exact=False) for c, p in zip(clusters, points, strict=True)]
    doubtful = torch.stack([doubts for _, doubts in found]).tolist()
    return [
        (_covered(c, p, radius, exact=True)[0] if again else covered).T
        for c, p, (covered, _), again in zip(clusters, points, found, doubtful, strict=True)
    ]


class _ClusterBatch:
    """Inputs offered to the clusters of one group, in two phases.

    The first works on the device and leaves a few numbers in ``sizes``; told these, the second builds the result.
    Between the two, one wait serves all groups.
    """

    def __init__(self, clusters: Clusters, values: Tensor, valid: Tensor, radius: Radius) -> None:
        self._clusters, self._radius = clusters, radius
        points = values.double().transpose(0, 1)
        self.opened = torch.zeros(len(values), dtype=torch.bool, device=points.device)
        self._rows: slice | Tensor = slice(None)
        exact = points.device.type == "cpu"
        covered, doubts = _covered(clusters, points, radius, exact=exact)
        if exact:
            # Where looking is free, only inputs that some layer has not covered need to be compared.
            self._rows = open_rows = (~covered & valid.T).any(0)
            values, valid, points = values[open_rows], valid[open_rows], points[:, open_rows]
            covered = covered[:, open_rows]
        self._values, self._valid, self._points = values, valid.T, points
        self._opens = self._valid & ~covered
        self._near, more = _near(points, self._opens, radius, exact=exact)
        doubts = doubts + more
        self._settled = _settle(self._opens, self._near, self._opens)
        self.sizes = torch.stack([self._unsettled(), doubts, self._needed()])

    def finish(self, unsettled: int, doubtful: int, needed: int) -> Clusters:
        """Return the clusters after the offer."""
        if doubtful:
            self._opens = self._valid & ~_covered(self._clusters, self._points, self._radius, exact=True)[0]
            self._near, _ = _near(self._points, self._opens, self._radius, exact=True)
            self._settled, unsettled = _settle(self._opens, self._near, self._opens), 1
        while unsettled:
            self._settled = _settle(self._opens, self._near, self._settled[0])
            unsettled, needed = torch.stack([self._unsettled(), self._needed()]).tolist()
        self.opened[self._rows] = self._settled[0].any(0)
        return _appended(self._clusters, self._values, self._settled[0], needed)

    def _unsettled(self) -> Tensor:
        return (self._settled[0] != self._settled[1]).sum()

    def _needed(self) -> Tensor:
        return (self._clusters.count + self._settled[0].sum(1)).max()


def _near(points: Tensor, opens: Tensor, radius: Radius, *, exact: bool) -> tuple[Tensor, Tensor]:
    """Return which inputs reach earlier ones, among those that no old cluster covers, and doubtful comparisons."""
    layers, rows = opens.shape
    near = torch.empty(layers, rows, rows, dtype=torch.bool, device=points.device)
    doubts = torch.zeros((), dtype=torch.int64, device=points.device)
    for some in blocks(layers if rows else 0, rows * rows, points.device):
        within, more = _within(points[some], points[some], radius, exact=exact)
        near[some] = within.tril(-1) & opens[some, None, :] & opens[some, :, None]
        doubts = doubts + more
    return near, doubts


def _settle(opens: Tensor, near: Tensor, guess: Tensor) -> tuple[Tensor, Tensor]:
    """Apply "an input opens a cluster unless an earlier centre reaches it" for a few rounds.

    Return the last two answers; they are equal once the answer is final, because every round fixes at least the next
    input, and in practice all within a few.
    """
    before = guess
    for _ in range(_ROUNDS):
        before, guess = guess, opens & ~(near & guess[:, None, :]).any(2)
        if guess.device.type == "cpu" and torch.equal(before, guess):
            break
    return guess, before


def _covered(clusters: Clusters, points: Tensor, radius: Radius, *, exact: bool) -> tuple[Tensor, Tensor]:
    covered = torch.zeros(points.shape[:2], dtype=torch.bool, device=points.device)
    doubts = torch.zeros((), dtype=torch.int64, device=points.device)
    live = clusters.live()
    for start in range(0, live.shape[1], _CENTRES):
        some = slice(start, start + _CENTRES)
        # Distances of a few layers at a time: those of all at once would take gigabytes.
        for layers in blocks(len(live), points.shape[1] * min(_CENTRES, live.shape[1]), points.device):
            within, doubtful = _within(points[layers], clusters.centres[layers, some].double(), radius, exact=exact)
            covered[layers] |= (within & live[layers, None, some]).any(2)
            doubts = doubts + doubtful
    return covered, doubts


def _within(points: Tensor, others: Tensor, radius: Radius, *, exact: bool) -> tuple[Tensor, Tensor]:
    """Return whether each pair is within reach, and how many pairs the product alone could not decide."""
    own, theirs = (rows.square().sum(2) for rows in (points, others))
    # Squared distances less the limit, in as few passes over memory as there are operations.
    beyond = torch.baddbmm(theirs[:, None, :], points, others.mT, alpha=-2)
    beyond += (own - radius.square)[:, :, None]
    within = beyond <= 0
    # What the product and the sums can be off by, and the comparison with a rounded square.
    error = (8 * points.shape[2] * _ROUNDING) * (own + theirs.amax(1, keepdim=True)) + 8 * _ROUNDING * radius.square
    doubtful = beyond.abs_() <= error[:, :, None]
    if not exact:
        return within, doubtful.sum()
    layer, row, column = doubtful.nonzero(as_tuple=True)
    for some in blocks(len(layer), points.shape[2], points.device):
        apart = points[layer[some], row[some]] - others[layer[some], column[some]]
        within[layer[some], row[some], column[some]] = radius.holds(apart.square().sum(1))
    return within, torch.zeros((), dtype=torch.int64, device=points.device)


def _appended(clusters: Clusters, values: Tensor, chosen: Tensor, capacity: int) -> Clusters:
    """Return the clusters with the chosen inputs as centres, in order."""
    layers, old, width = clusters.centres.shape
    if not len(values):
        return clusters
    # One row more than needed takes whatever was not chosen.
    dtype = torch.promote_types(values.dtype, clusters.centres.dtype)
    centres = values.new_zeros(layers, capacity + 1, width, dtype=dtype)
    centres[:, :old] = clusters.centres
    place = torch.where(chosen, clusters.count[:, None] + chosen.cumsum(1) - 1, capacity)
    centres[torch.arange(layers, device=values.device)[:, None], place] = values.transpose(0, 1).to(dtype)
    return Clusters(centres[:, :capacity].contiguous(), clusters.count + chosen.sum(1))


def _side_by_side(ours: Clusters, theirs: Clusters) -> Clusters:
    """Return the clusters of the layers of both, with as much room as the larger one has."""
    capacity = max(ours.centres.shape[1], theirs.centres.shape[1])
    rows = [pad(c.centres, (0, 0, 0, capacity - c.centres.shape[1])) for c in (ours, theirs)]
    return Clusters(torch.cat(rows), torch.cat([ours.count, theirs.count]))


@dataclass(frozen=True, eq=False)
class CCState(State, name="cc"):
    """Cluster centres per group of layers."""

    clusters: tuple[Clusters, ...]


@dataclass(frozen=True, eq=False)
class CC(Criterion[CCState]):
    """Cluster coverage (Odena et al., TensorFuzz, ICML 2019).

    In each layer, inputs in order: one opens a cluster when its Euclidean distance to every centre so far
    exceeds ``distance``; the first opens one.

        CC = Σ over layers of the clusters of that layer

    Comparisons are exact, in float64. Depends on the order of inputs, not on how they are batched. Merging
    offers the other suite's centres, in order, to this one's.

    Args:
        distance: how far a cluster reaches.
        squared: compare squared distances with ``distance`` instead, as TensorFuzz does.

    Examples:
        >>> import torch, neuralcov as nc
        >>> cov = nc.Coverage.of_layers({"fc": 2}, [nc.CC(5)])
        >>> cov.update(activations={"fc": torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.1]])})
        >>> cov.values()
        {'CC(5)': 2.0}
    """

    distance: float = 10
    squared: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(self, "distance", at_least=0)
        checks.flag(self, "squared")

    @property
    @override
    def promises(self) -> frozenset[str]:
        return frozenset({NEVER_FALLS, SPLIT_FREE, DUPLICATE_FREE})

    @override
    def init(self, layout: Layout) -> CCState:
        clusters = tuple(Clusters.empty(len(group), group.width, layout.device) for group in layout.groups)
        return CCState(no_counts(layout), widths_of(layout), clusters)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        # A centre for every input, in float32.
        return Cost(tensor_bytes(self.init(layout)) + 4 * layout.neurons * workload.inputs, grows=True)

    @override
    def observe(self, state: CCState, batch: Activations, *, donate: bool = False) -> CCState:
        values, valid = [stack.values for stack in batch.stacks], [stack.valid_mask() for stack in batch.stacks]
        clusters, _ = offer_all(state.clusters, values, valid, self._radius())
        return CCState(state.counts + batch.input_counts, state.widths, clusters)

    @override
    def merge(self, a: CCState, b: CCState) -> CCState:
        """Offer the second's centres, in order, to the first."""
        centres, live = [c.centres.transpose(0, 1) for c in b.clusters], [c.live().T for c in b.clusters]
        clusters, _ = offer_all(a.clusters, centres, live, self._radius())
        return CCState(a.counts + b.counts, a.widths, clusters)

    @override
    def joined(self, other: Self, a: CCState, b: CCState, *, alike: bool) -> tuple[Self, CCState]:
        layers = SideBySide(a.widths, b.widths)
        return self, CCState(a.counts, layers.widths, layers.groups(a.clusters, b.clusters, _side_by_side))

    @override
    def value(self, state: CCState) -> Float[Tensor, ""]:
        return torch.stack([c.count.sum() for c in state.clusters]).sum().double()

    @override
    def by_layer(self, state: CCState) -> Float[Tensor, "layers"]:
        return in_execution_order(state.widths, [c.count.double() for c in state.clusters])

    @override
    def gain(self, state: CCState, batch: Activations) -> Float[Tensor, "batch"]:
        opened = torch.zeros(batch.size, dtype=torch.float64, device=batch.device)
        covered = covered_by_all(state.clusters, [stack.values for stack in batch.stacks], self._radius())
        for reached, stack in zip(covered, batch.stacks, strict=True):
            opened += (stack.valid_mask() & ~reached).sum(1)
        return opened

    @override
    def admit(
        self, state: CCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], CCState]:
        """Admit, in order, inputs that open a cluster; the others change nothing, so all are offered together."""
        if not 0 <= min_gain < 1:
            return super().admit(state, batch, min_gain=min_gain)
        values, valid = [stack.values for stack in batch.stacks], [stack.valid_mask() for stack in batch.stacks]
        clusters, opened = offer_all(state.clusters, values, valid, self._radius())
        counts = count_admitted(state.counts, opened, self.exclusions(batch))
        return opened, CCState(counts, state.widths, clusters)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        return not_finite(batch)

    def _radius(self) -> Radius:
        return Radius(float(self.distance), self.squared)
