"""Abstract paths: what the critical paths of a class's training inputs have in common, and how near an input is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.kmeans import k_means
from neuralcov.core.paths import PathRows
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.sizes import blocks
from neuralcov.core.traces import Traces


@dataclass(frozen=True, eq=False)
class AbstractPaths(Record, name="abstract-paths"):
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
class Members(Record, name="path-members"):
    """The training inputs behind abstract paths.

    Args:
        traces: of all training inputs, all layers.
        numbers: their numbers there, those of each abstract path in turn.
        upper: per layer, the largest distance that counts.
    """

    traces: Traces
    numbers: Int[Tensor, "rows"]
    upper: Float[Tensor, "layers"]

    @cached_property
    def on_host(self) -> Int[Tensor, "rows"]:
        """The numbers, where traces are looked up by them."""
        return self.numbers.cpu()


def abstract_paths(
    rows: PathRows, classes: Int[Tensor, "classes"], neurons: int, clusters: int, beta: float
) -> tuple[AbstractPaths, Int[Tensor, "rows"]]:
    """Every class's paths clustered and abstracted, and the numbers of each abstract path's inputs in turn."""
    paths = torch.zeros(len(classes), clusters, neurons, dtype=torch.bool, device=classes.device)
    sizes = torch.zeros(len(classes), clusters, dtype=torch.int64, device=classes.device)
    numbers = []
    for index, label in enumerate(classes.tolist()):
        mine = (rows.classes == label).nonzero()[:, 0]
        if not len(mine):
            continue
        bits = rows.bits(mine, neurons)
        cluster = k_means(bits, clusters)
        for number in torch.unique(cluster).tolist():
            members = bits[cluster == number]
            paths[index, number] = members.sum(0).double() / len(members) >= beta
            sizes[index, number] = len(members)
        numbers.append(rows.numbers[mine[cluster.argsort(stable=True)]])
    return AbstractPaths(classes, paths, sizes), torch.cat(numbers)


def distances(
    abstract: AbstractPaths,
    members: Members,
    activations: Float[Tensor, "batch neurons"],
    chosen: Int[Tensor, "batch"],
    widths: tuple[int, ...],
) -> Float[Tensor, "batch layers"]:
    """Per layer, the least distance to the training inputs of the chosen abstract path, over its neurons.

    Infinity for an input that chose none, by a negative number. Waits for the device once, to see which paths
    were chosen.
    """
    found = torch.full((len(chosen), len(widths)), torch.inf, dtype=torch.float64, device=activations.device)
    picked = chosen.cpu()
    for path in torch.unique(picked[picked >= 0]).tolist():
        inputs = (picked == path).nonzero()[:, 0].to(chosen.device, non_blocking=True)
        found[inputs] = _from_path(abstract, members, path, activations[inputs], widths)
    return found


def furthest(
    abstract: AbstractPaths, members: Members, rows: PathRows, widths: tuple[int, ...]
) -> Float[Tensor, "layers"]:
    """Per layer the largest distance of a training input to the others of the path it is most like; 0 for none."""
    index, _ = abstract.place(rows.classes)
    chosen = [
        abstract.nearest(rows.bits(some, sum(widths)), index[some], widths)
        for some in blocks(len(rows), sum(widths), index.device)
    ]
    picked, numbers = torch.cat(chosen).cpu(), rows.numbers.cpu()
    most = torch.zeros(len(widths), dtype=torch.float64, device=index.device)
    for path in torch.unique(picked).tolist():
        own = numbers[picked == path]
        found = _from_path(abstract, members, path, members.traces.rows(own), widths, own)
        most = torch.maximum(most, found.masked_fill(found.isinf(), 0).amax(0))
    return most


def _from_path(
    abstract: AbstractPaths,
    members: Members,
    path: int,
    activations: Float[Tensor, "some neurons"],
    widths: tuple[int, ...],
    own: Int[Tensor, "some"] | None = None,
) -> Float[Tensor, "some layers"]:
    """The least distances from one abstract path's training inputs; those with ``own`` numbers do not count."""
    paths, ends = abstract.on_host
    theirs = members.on_host[ends[path - 1] if path else 0 : ends[path]]
    traces, device = members.traces.rows(theirs), activations.device
    same = None if own is None else (own[:, None] == theirs).to(device)
    columns, first = [], 0
    for width in widths:
        neurons = (first + paths[path, first : first + width].nonzero()[:, 0]).to(device, non_blocking=True)
        there = traces[:, neurons].double()
        least = []
        for some in blocks(len(activations), len(there), device):
            apart = _apart(activations[some][:, neurons].double(), there)
            least.append((apart if same is None else apart.masked_fill(same[some], torch.inf)).amin(1))
        columns.append(torch.cat(least))
        first += width
    return torch.stack(columns, dim=1)


def _apart(here: Float[Tensor, "_ k"], there: Float[Tensor, "_ k"]) -> Float[Tensor, "_ _"]:
    # By differences, not products, which lose the digits of small distances.
    return torch.cdist(here, there, compute_mode="donot_use_mm_for_euclid_dist")


def _counts(bits: Bool[Tensor, "*rows neurons"], widths: tuple[int, ...]) -> Float[Tensor, "*rows parts"]:
    return torch.stack([part.sum(-1) for part in torch.split(bits, list(widths), dim=-1)], dim=-1).double()
