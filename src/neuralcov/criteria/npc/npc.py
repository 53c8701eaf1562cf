"""NPC, neuron path coverage: how the neurons that decide for a class compare with those that did in training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core import arguments as checks
from neuralcov.core.activations import Activations
from neuralcov.core.cost import Cost, Workload
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.criteria.bitmap_states import AnyBitmap, FlatBitmapState
from neuralcov.criteria.npc.abstract_paths import AbstractPaths, Members, abstract_paths, distances, furthest
from neuralcov.criteria.npc.paths import Paths, critical_paths, finite_with_relevance
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.statistic import Statistic
from neuralcov.statistics.traces import Traces, trace_of


@dataclass(frozen=True, eq=False)
class NPCLearnt(Record, name="npc-learnt"):
    """What NPC learnt: abstract paths and, in activation mode, the training inputs behind them.

    A state file holds no training inputs: loaded without its calibration it has a value but takes no batch.
    """

    abstract: AbstractPaths
    members: Members | None


@dataclass(frozen=True, eq=False)
class NPC(BitmapCriterion):
    """Neuron path coverage (Xie et al., TOSEM 2022), on relevance by layer-wise propagation (Bach et al., 2015).

    An input's critical path has, per layer, the fewest neurons by falling relevance for the predicted class that
    reach ``alpha`` of the layer's positive relevance. Per class the paths of correctly classified training
    inputs are clustered; a cluster's abstract path P keeps the neurons that ``beta`` of its members share.

        J = |p ∩ P| / |p ∪ P|,    bucket = min(⌊J · buckets⌋, buckets − 1)
        NPC = covered (class, cluster, bucket) / (C · clusters · buckets)

    with p the input's path, P every abstract path of its predicted class in turn and C the classes among the
    training labels. All of it is decided in float64. Inputs whose class has no abstract path are excluded and
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

    Examples:
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
        super().__post_init__()
        checks.number(self, "alpha", above=0, at_most=1)
        checks.number(self, "beta", above=0, at_most=1)
        checks.whole_number(self, "clusters", at_least=1)
        checks.whole_number(self, "buckets", at_least=1)
        checks.one_of(self, "mode", "structure", "activation")
        if self.upper is not None:
            checks.number(self, "upper", above=0)
            if self.mode == "structure":
                raise checks.argument_error(self, "upper", "left out in mode='structure', which has no distances")

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"predictions", "relevance"})

    @property
    @override
    def learns(self) -> frozenset[Statistic[Any]]:
        return frozenset({Paths(self.alpha), Traces()} if self.mode == "activation" else {Paths(self.alpha)})

    @override
    def calibrate(self, calibration: Calibration) -> Self:
        """Cluster the paths of every class and abstract them."""
        paths = calibration[Paths(self.alpha)]
        rows, widths = paths.rows, calibration.widths
        if not len(rows):
            raise CalibrationError(
                f"{self.name}: none of {calibration.seen} training inputs was classified correctly, so there is no "
                "path to learn; check that labels and predictions count classes alike"
            )
        abstract, numbers = abstract_paths(rows, paths.classes, sum(widths), self.clusters, self.beta)
        if self.mode == "structure":
            return replace(self, learnt=NPCLearnt(abstract, None))
        upper = torch.full((len(widths),), self.upper or 0.0, dtype=torch.float64, device=numbers.device)
        members = Members(calibration[Traces()].of_layers(calibration.names), numbers, upper)
        if self.upper is None:
            members = replace(members, upper=furthest(abstract, members, rows, widths))
        return replace(self, learnt=NPCLearnt(abstract, members))

    @override
    def for_state_file(self) -> NPCLearnt | None:
        return None if self.learnt is None else replace(self.learnt, members=None)

    @override
    def learnt_template(self, layout: Layout) -> tuple[NPCLearnt, NPCLearnt]:
        paths = torch.empty(0, self.clusters, layout.neurons, dtype=torch.bool, device=layout.device)
        sizes = torch.empty(0, self.clusters, dtype=torch.int64, device=layout.device)
        form = NPCLearnt(AbstractPaths(sizes.new_empty(0), paths, sizes), None)
        return form, form

    @override
    def shape(self, layout: Layout) -> tuple[int, ...]:
        learnt: NPCLearnt = self.require_learnt()
        layers = (len(layout),) if self.mode == "activation" else ()
        return (len(learnt.abstract.classes), self.clusters, *layers, self.buckets)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        paths = workload.classes * self.clusters
        cells = paths * self.buckets * (len(layout) if self.mode == "activation" else 1)
        # Abstract paths have a byte per neuron; with errors a cell takes two more, and folds are counted.
        state = 24 + (3 * cells + 80 if self.errors else cells)
        return Cost(state, learnt=8 * workload.classes + paths * (layout.neurons + 8), to_disk=True)

    @override
    def flat_hits(self, batch: Activations) -> Int[Tensor, "batch k"]:
        learnt: NPCLearnt = self.require_learnt()
        _, index, _ = self._place(batch)
        if self.mode == "structure":
            return self._by_likeness(learnt, batch, index)
        return self._by_distance(learnt, batch, index)

    @override
    def by_layer(self, state: AnyBitmap) -> Float[Tensor, "layers"] | None:
        if self.mode == "structure" or not isinstance(state, FlatBitmapState):
            return None
        return state.covered.double().mean((0, 1, 3))

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        finite, _, known = self._place(batch)
        return torch.where(finite, torch.where(known, VALID, NOT_PLACEABLE), NOT_FINITE)

    def _place(self, batch: Activations) -> tuple[Bool[Tensor, "batch"], Int[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Return which inputs have finite outputs and relevance, the index of their class, whether it has a path."""
        learnt: NPCLearnt = self.require_learnt()
        assert batch.predictions is not None
        return finite_with_relevance(batch), *learnt.abstract.place(batch.predictions.to(batch.device))

    def _by_likeness(self, learnt: NPCLearnt, batch: Activations, index: Tensor) -> Int[Tensor, "batch clusters"]:
        """Return a bucket of likeness to each abstract path of the class; negative where there is none."""
        bits = critical_paths(batch, self.alpha)
        alike = learnt.abstract.likeness(bits, index, (bits.shape[1],))[:, :, 0]
        bucket = (alike * self.buckets).floor().clamp(max=self.buckets - 1).long()
        path = index[:, None] * self.clusters + torch.arange(self.clusters, device=index.device)
        return torch.where(learnt.abstract.sizes[index] > 0, path * self.buckets + bucket, -1)

    def _by_distance(self, learnt: NPCLearnt, batch: Activations, index: Tensor) -> Int[Tensor, "batch layers"]:
        """Return a bucket of distance in each layer, from the abstract path most alike; negative beyond ``upper``."""
        if learnt.members is None:
            raise CalibrationError(
                f"{self.name}: the state file holds no training inputs to compare with; "
                "load it with calibration=, the file that save_calibration wrote"
            )
        widths, upper = tuple(batch.layout.widths.values()), learnt.members.upper
        path = learnt.abstract.nearest(critical_paths(batch, self.alpha), index, widths)
        # Distances of excluded inputs are not looked for.
        wanted = torch.where(self.exclusions(batch) == VALID, path, -1)
        apart = distances(learnt.abstract, learnt.members, trace_of(batch, tuple(batch.layers)), wanted, widths)
        bucket = (apart / upper * self.buckets).floor().clamp(max=self.buckets - 1).long()
        cell = (path[:, None] * len(widths) + torch.arange(len(widths), device=path.device)) * self.buckets + bucket
        return torch.where((apart <= upper) & (upper > 0) & _present(batch), cell, -1)


def _present(batch: Activations) -> Bool[Tensor, "batch layers"]:
    """Return which layers each input has."""
    everywhere = torch.ones(batch.size, dtype=torch.bool, device=batch.device)
    return torch.stack([batch.present.get(name, everywhere).to(batch.device) for name in batch.layers], dim=1)
