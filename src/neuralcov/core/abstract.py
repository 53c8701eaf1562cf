"""Abstract paths: what the critical paths of a class's training inputs have in common, and how near an input is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.kmeans import k_means
from neuralcov.core.paths import PathRows, unpack
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.sizes import blocks


@dataclass(frozen=True, eq=False)
class AbstractPaths(Record):
    """Every class's abstract paths, and how many training inputs each stands for; 0 where there is no such path."""

    classes: Int[Tensor, "classes"]
    paths: Bool[Tensor, "classes clusters neurons"]
    sizes: Int[Tensor, "classes clusters"]

    @cached_property
    def on_host(self) -> tuple[Bool[Tensor, "paths neurons"], list[int]]:
        """All paths counted through, and where the training inputs of each end, for loops that the host runs."""
        return self.paths.flatten(0, 1).cpu(), self.sizes.flatten().cumsum(0).tolist()

    def place(self, classes: Int[Tensor, "batch"]) -> tuple[Int[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Where each class stands here, and whether it is here and has a path."""
        index = torch.searchsorted(self.classes, classes).clamp(max=len(self.classes) - 1)
        return index, (self.classes[index] == classes) & (self.sizes[index] > 0).any(1)

    def likeness(
        self, bits: Bool[Tensor, "batch neurons"], index: Int[Tensor, "batch"], widths: tuple[int, ...]
    ) -> Float[Tensor, "batch clusters parts"]:
        """Jaccard of every path with each abstract path of its class, in each part of the given widths.

        Two paths that are both empty have nothing in common: 0.
        """
        found = []
        for rows in blocks(len(bits), self.paths[0].numel(), bits.device):
            ours, theirs = bits[rows, None], self.paths[index[rows]]
            common = _counts(ours & theirs, widths)
            found.append(common / _counts(ours | theirs, widths).clamp(min=1))
        nothing = torch.zeros(0, self.sizes.shape[1], len(widths), dtype=torch.float64, device=bits.device)
        return torch.cat([nothing, *found])

    def nearest(
        self, bits: Bool[Tensor, "batch neurons"], index: Int[Tensor, "batch"], widths: tuple[int, ...]
    ) -> Int[Tensor, "batch"]:
        """The abstract path of its class that each path is most like, by the mean over layers; the first of equals.

        Counted through: path k of the class at ``index`` is ``index · clusters + k``.
        """
        alike = self.likeness(bits, index, widths).mean(2)
        best = alike.masked_fill(self.sizes[index] == 0, -1).argmax(1)
        return index * self.sizes.shape[1] + best


@dataclass(frozen=True, eq=False)
class Members(Record):
    """The training inputs behind abstract paths.

    Args:
        activations: of every correctly classified training input.
        order: their rows, those of each abstract path in turn.
        upper: per layer, the largest distance that counts.
    """

    activations: Float[Tensor, "rows neurons"]
    order: Int[Tensor, "rows"]
    upper: Float[Tensor, "layers"]


def abstract_paths(
    rows: PathRows, classes: Int[Tensor, "classes"], neurons: int, clusters: int, beta: float
) -> tuple[AbstractPaths, Int[Tensor, "rows"]]:
    """Every class's paths clustered and abstracted, and the rows of each abstract path in turn."""
    paths = torch.zeros(len(classes), clusters, neurons, dtype=torch.bool, device=classes.device)
    sizes = torch.zeros(len(classes), clusters, dtype=torch.int64, device=classes.device)
    order = []
    for index, label in enumerate(classes.tolist()):
        mine = (rows.classes == label).nonzero()[:, 0]
        if not len(mine):
            continue
        bits = unpack(rows.bits[mine], neurons)
        cluster = k_means(bits, clusters)
        for number in torch.unique(cluster).tolist():
            members = bits[cluster == number]
            paths[index, number] = members.sum(0).double() / len(members) >= beta
            sizes[index, number] = len(members)
        order.append(mine[cluster.argsort(stable=True)])
    return AbstractPaths(classes, paths, sizes), torch.cat(order)


def distances(
    abstract: AbstractPaths,
    members: Members,
    activations: Float[Tensor, "batch neurons"],
    chosen: Int[Tensor, "batch"],
    widths: tuple[int, ...],
    own: Int[Tensor, "batch"] | None = None,
) -> Float[Tensor, "batch layers"]:
    """Per layer, the least distance to the training inputs of the chosen abstract path, over its neurons.

    Infinity where there is none to compare with. Waits for the device once.

    Args:
        abstract: the abstract paths.
        members: the training inputs behind them.
        activations: of the inputs to measure.
        chosen: each input's abstract path, counted through; negative for none.
        widths: neurons of each layer.
        own: each input's own row among the training inputs, which does not count.
    """
    found = torch.full((len(chosen), len(widths)), torch.inf, dtype=torch.float64, device=activations.device)
    paths, ends = abstract.on_host
    picked = chosen.cpu()
    for path in torch.unique(picked[picked >= 0]).tolist():
        inputs = (picked == path).nonzero().to(chosen.device)
        theirs = members.order[ends[path - 1] if path else 0 : ends[path], None]
        first = 0
        for layer, width in enumerate(widths):
            neurons = (first + paths[path, first : first + width].nonzero()[:, 0]).to(chosen.device)
            there = members.activations[theirs, neurons].double()
            for rows in blocks(len(inputs), len(there), chosen.device):
                some = inputs[rows]
                apart = _apart(activations[some, neurons].double(), there)
                if own is not None:
                    apart = apart.masked_fill(own[some] == theirs.T, torch.inf)
                found[some[:, 0], layer] = apart.amin(1)
            first += width
    return found


def furthest(
    abstract: AbstractPaths, members: Members, rows: PathRows, widths: tuple[int, ...]
) -> Float[Tensor, "layers"]:
    """Per layer the largest distance of a training input to the others of the path it is most like; 0 for none."""
    index, _ = abstract.place(rows.classes)
    chosen = [
        abstract.nearest(unpack(rows.bits[some], sum(widths)), index[some], widths)
        for some in blocks(len(rows), sum(widths), index.device)
    ]
    own = torch.arange(len(rows), device=index.device)
    found = distances(abstract, members, members.activations, torch.cat(chosen), widths, own)
    return found.masked_fill(found.isinf(), 0).amax(0)


def _apart(here: Float[Tensor, "_ k"], there: Float[Tensor, "_ k"]) -> Float[Tensor, "_ _"]:
    # By differences, not products, which lose the digits of small distances.
    return torch.cdist(here, there, compute_mode="donot_use_mm_for_euclid_dist")


def _counts(bits: Bool[Tensor, "*rows neurons"], widths: tuple[int, ...]) -> Float[Tensor, "*rows parts"]:
    return torch.stack([part.sum(-1) for part in torch.split(bits, list(widths), dim=-1)], dim=-1).double()
