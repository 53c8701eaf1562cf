"""NPC, neuron path coverage: how the neurons that decide for a class compare with those that did in training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.criterion import (
    ALL_PROMISES,
    NOT_FINITE,
    TAKEN,
    UNPLACED,
    Criterion,
    State,
    counted,
    no_counts,
    widths_of,
)
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import parse_bytes
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.npc.abstract_paths import AbstractPaths, Members, abstract_paths, distances, furthest
from neuralcov.criteria.npc.paths import Paths, critical_paths, explained, paths_name
from neuralcov.statistics.calibration import Reference
from neuralcov.statistics.traces import trace_of


@dataclass(frozen=True, eq=False)
class NPCFit(Record, name="npc-learnt"):
    """What NPC learnt: abstract paths and, in activation mode, the training inputs behind them.

    A state file holds no training inputs: loaded without its calibration it has a value but takes no batch.
    """

    abstract: AbstractPaths
    members: Members | None


@dataclass(frozen=True, eq=False)
class NPCState(State, name="npc"):
    """Covered cells: ``(classes, clusters, buckets)``, in activation mode ``(classes, clusters, layers, buckets)``."""

    covered: Bool[Tensor, "classes clusters *cells"]


@dataclass(frozen=True, eq=False)
class NPC(Criterion[NPCState]):
    r"""Neuron path coverage (Xie et al., TOSEM 2022), on relevance by layer-wise propagation (Bach et al., 2015).

    An input's critical path has, per layer, the fewest neurons by falling relevance for the predicted class that
    reach ``alpha`` of the layer's positive relevance. Per class the paths of correctly classified training
    inputs are clustered; a cluster's abstract path P keeps the neurons that ``beta`` of its members share.

    .. math:: \text{bucket} = \min(\lfloor J \cdot \text{buckets} \rfloor, \text{buckets} - 1),\qquad
              J = \frac{|p \cap P|}{|p \cup P|},\qquad
              \text{NPC} = \frac{\text{covered (class, cluster, bucket)}}{C\cdot\text{clusters}\cdot\text{buckets}}

    with p the input's path, P every abstract path of its predicted class in turn and C the classes among the
    training labels. All of it is decided in float64. Inputs whose class has no abstract path are left out and
    counted. A class with fewer distinct paths than ``clusters`` has fewer clusters; the divisor stays.

    Args:
        alpha: share of a layer's positive relevance that a path must reach.
        beta: share of a cluster's members that must have a neuron for its abstract path to keep it.
        clusters: abstract paths per class.
        buckets: equal steps of similarity, or of distance.
        mode: ``"structure"`` as above. ``"activation"``: of the abstract path nearest by mean Jaccard over layers,
            per layer the least Euclidean distance, over the path's neurons, from the input's activations to those
            of the cluster's training inputs falls into one of ``buckets`` steps up to ``upper``, or beyond it into
            none; the value is covered (class, cluster, layer, bucket) / (C · clusters · layers · buckets).
        upper: in activation mode the largest distance that counts; by default, per layer, the largest among the
            training inputs, each compared with all but itself. A layer where that is 0 covers nothing.

    Example:
        >>> import torch, neuralcov as nc
        >>> relevance = {"fc": torch.tensor([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 1.0, 3.0]])}
        >>> classes = torch.tensor([0, 0, 1])
        >>> batch = nc.Activations({"fc": torch.eye(3)}, labels=classes, predictions=classes, relevance=relevance)
        >>> cov = nc.Coverage.of_layers({"fc": 3}, [nc.NPC(clusters=1, buckets=2)])
        >>> cov.calibrate(activations=batch)
        >>> cov.update(activations=batch)
        >>> cov.values()
        {'NPC(0.7, clusters=1, buckets=2)': 0.5}
    """

    alpha: float = 0.7
    beta: float = 0.7
    clusters: int = 4
    buckets: int = 100
    mode: str = "structure"
    upper: float | None = None

    def __post_init__(self) -> None:
        checks.number(self, "alpha", above=0, at_most=1)
        checks.number(self, "beta", above=0, at_most=1)
        checks.whole_number(self, "clusters", at_least=1)
        checks.whole_number(self, "buckets", at_least=1)
        checks.one_of(self, "mode", "structure", "activation")
        if self.upper is not None:
            checks.number(self, "upper", above=0)
            if self.mode == "structure":
                raise checks.refuse(self, "upper", "left out in mode='structure', which has no distances")

    @property
    def needs(self) -> frozenset[str]:
        """The predicted class, and how far each neuron speaks for it."""
        return frozenset({"predictions", "relevance"})

    @property
    def learns(self) -> frozenset[str]:
        """Paths of training inputs, in activation mode also their traces."""
        return frozenset({paths_name(self.alpha)} | ({"traces"} if self.mode == "activation" else set()))

    @property
    def trace_memory(self) -> int:
        """What traces may take on the device, as other criteria allow by default."""
        return parse_bytes("16GiB")

    def traced(self, layout: Layout) -> tuple[str, ...]:
        """All layers."""
        return tuple(layout)

    @property
    def promises(self) -> frozenset[str]:
        """A bitmap keeps them all."""
        return ALL_PROMISES

    def calibrate(self, reference: Reference) -> Self:
        """Cluster the paths of every class and abstract them."""
        paths: Paths = reference.find(paths_name(self.alpha))
        rows, widths = paths.rows, reference.widths
        if not len(rows):
            raise CalibrationError(
                f"{self.name}: none of {reference.seen} training inputs was classified correctly, so there is no path "
                "to learn; check that labels and predictions count classes alike"
            )
        abstract, numbers = abstract_paths(rows, paths.classes, sum(widths), self.clusters, self.beta)
        if self.mode == "structure":
            return replace(self, fitted=NPCFit(abstract, None))
        assert reference.traces is not None
        upper = torch.full((len(widths),), self.upper or 0.0, dtype=torch.float64, device=numbers.device)
        members = Members(reference.traces.of_layers(reference.names), numbers, upper)
        if self.upper is None:
            members = replace(members, upper=furthest(abstract, members, rows, widths))
        return replace(self, fitted=NPCFit(abstract, members))

    def portable(self) -> NPCFit | None:
        """The abstract paths; the training inputs behind them stay in the saved calibration."""
        return None if self.fitted is None else replace(self.fitted, members=None)

    def learnt_template(self, layout: Layout) -> NPCFit:
        """Return abstract paths of any number of classes."""
        paths = torch.empty(0, self.clusters, layout.neurons, dtype=torch.bool, device=layout.device)
        sizes = torch.empty(0, self.clusters, dtype=torch.int64, device=layout.device)
        return NPCFit(AbstractPaths(sizes.new_empty(0), paths, sizes), None)

    def init(self, layout: Layout) -> NPCState:
        """No cell covered."""
        fit: NPCFit = self.require_fitted()
        widths = widths_of(layout)
        shape = (
            len(fit.abstract.classes),
            self.clusters,
            *([len(widths)] if self.mode == "activation" else []),
            self.buckets,
        )
        return NPCState(no_counts(layout), widths, torch.zeros(shape, dtype=torch.bool, device=layout.device))

    def observe(self, state: NPCState, batch: Activations, *, donate: bool = False) -> NPCState:
        """Cover the cells the batch falls into."""
        cells, counts = self._cells(state, batch)
        hit = torch.zeros(state.covered.numel() + 1, dtype=torch.bool, device=cells.device)
        hit.scatter_(0, cells.flatten(), True)
        covered = state.covered if donate else state.covered.clone()
        covered.logical_or_(hit[:-1].reshape(covered.shape))
        return NPCState(state.counts + counts, state.widths, covered)

    def merge(self, a: NPCState, b: NPCState) -> NPCState:
        """Cells covered by either."""
        return NPCState(a.counts + b.counts, a.widths, a.covered | b.covered)

    def value(self, state: NPCState) -> Float[Tensor, ""]:
        """Covered cells divided by all cells."""
        return state.covered.sum().double() / state.covered.numel()

    def by_layer(self, state: NPCState) -> Float[Tensor, "layers"] | None:
        """In activation mode each layer's covered cells divided by its cells; a structure has no layers."""
        if self.mode == "structure":
            return None
        return state.covered.double().mean((0, 1, 3))

    def gain(self, state: NPCState, batch: Activations) -> Float[Tensor, "batch"]:
        """Cells each input would newly cover, divided by all cells; one input never hits a cell twice."""
        cells, _ = self._cells(state, batch)
        known = torch.cat([state.covered.flatten(), torch.ones_like(state.covered.flatten()[:1])])
        return (~known[cells]).sum(1).double() / state.covered.numel()

    def admit(
        self, state: NPCState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], NPCState]:
        """In order, inputs that hit a cell nothing before them has: the first to hit any cell not yet covered."""
        if min_gain != 0:
            return super().admit(state, batch, min_gain=min_gain)
        cells, _ = self._cells(state, batch)
        rows = torch.arange(batch.size, device=cells.device)[:, None].expand(cells.shape)
        first = torch.full((state.covered.numel() + 1,), batch.size, device=cells.device)
        first = first.scatter_reduce_(0, cells.flatten(), rows.flatten(), "amin")[:-1].view(state.covered.shape)
        # One entry more than there are inputs takes what nothing hits, or nothing newly.
        taken = torch.zeros(batch.size + 1, dtype=torch.bool, device=cells.device)
        taken[first.masked_fill(state.covered, batch.size).flatten()] = True
        covered = state.covered | (first < batch.size)
        counts = counted(state.counts, taken[:-1], self.exclusions(batch))
        return taken[:-1], NPCState(counts, state.widths, covered)

    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Inputs with outputs or relevance that are not finite, and those whose class has no abstract path."""
        usable, _, known = self._placed(batch)
        return torch.where(usable, torch.where(known, TAKEN, UNPLACED), NOT_FINITE)

    def _cells(self, state: NPCState, batch: Activations) -> tuple[Int[Tensor, "batch cells"], Int[Tensor, "3"]]:
        """The cells each input falls into, one past the last for none, and the counts of inputs."""
        fit: NPCFit = self.require_fitted()
        usable, index, known = self._placed(batch)
        taken = usable & known
        cells = (self._by_likeness if self.mode == "structure" else self._by_distance)(fit, batch, index, taken)
        counts = torch.stack([taken.sum(), (~usable).sum(), (usable & ~known).sum()])
        return torch.where(taken[:, None] & (cells >= 0), cells, state.covered.numel()), counts

    def _placed(self, batch: Activations) -> tuple[Bool[Tensor, "batch"], Int[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Which inputs have finite outputs and relevance, the index of their class, and whether it has a path."""
        fit: NPCFit = self.require_fitted()
        assert batch.predictions is not None
        return explained(batch), *fit.abstract.place(batch.predictions.to(batch.device))

    def _by_likeness(
        self, fit: NPCFit, batch: Activations, index: Tensor, taken: Tensor
    ) -> Int[Tensor, "batch clusters"]:
        """A bucket of likeness to each abstract path of the class; negative where there is none."""
        bits = critical_paths(batch, self.alpha)
        alike = fit.abstract.likeness(bits, index, (bits.shape[1],))[:, :, 0]
        bucket = (alike * self.buckets).floor().clamp(max=self.buckets - 1).long()
        path = index[:, None] * self.clusters + torch.arange(self.clusters, device=index.device)
        return torch.where(fit.abstract.sizes[index] > 0, path * self.buckets + bucket, -1)

    def _by_distance(
        self, fit: NPCFit, batch: Activations, index: Tensor, taken: Tensor
    ) -> Int[Tensor, "batch layers"]:
        """A bucket of distance in each layer, from the abstract path most alike; negative beyond ``upper``."""
        if fit.members is None:
            raise CalibrationError(
                f"{self.name}: the state file holds no training inputs to compare with; "
                "load it with calibration=, the file that save_calibration wrote"
            )
        widths, upper = tuple(batch.layout.widths.values()), fit.members.upper
        path = fit.abstract.nearest(critical_paths(batch, self.alpha), index, widths)
        apart = distances(
            fit.abstract, fit.members, trace_of(batch, tuple(batch.layers)), torch.where(taken, path, -1), widths
        )
        bucket = (apart / upper * self.buckets).floor().clamp(max=self.buckets - 1).long()
        cell = (path[:, None] * len(widths) + torch.arange(len(widths), device=path.device)) * self.buckets + bucket
        return torch.where((apart <= upper) & (upper > 0) & _present(batch), cell, -1)


def _present(batch: Activations) -> Bool[Tensor, "batch layers"]:
    """Which layers each input has."""
    everywhere = torch.ones(batch.size, dtype=torch.bool, device=batch.device)
    return torch.stack([batch.present.get(name, everywhere).to(batch.device) for name in batch.layers], dim=1)
