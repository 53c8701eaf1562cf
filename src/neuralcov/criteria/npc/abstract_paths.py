"""Abstract paths: what the critical paths of a class's training inputs have in common, and how near an input is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.npc.paths import PathRows
from neuralcov.statistics.traces import TraceStore


def k_means(rows: Bool[Tensor, "rows bits"], clusters: int, *, seed: int = 0, rounds: int = 100) -> Int[Tensor, "rows"]:
    """Return the cluster of every row, by Lloyd's algorithm from a k-means++ start.

    Rows as near to one centre as to another go to the lower one. There are fewer clusters than asked for where
    there are fewer distinct rows, and where one loses all its rows on the way.

    >>> k_means(torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 1], [0, 0, 1]]).bool(), 2)
    tensor([1, 0, 1, 0])
    """
    sums = rows[seeds(rows, clusters, seed=seed)].double()
    counts = sums.new_ones(len(sums))
    labels = torch.full((len(rows),), -1, device=rows.device)
    for _ in range(rounds):
        previous, labels = labels, _nearest(rows, sums, counts)
        if torch.equal(labels, previous):
            break
        members = torch.nn.functional.one_hot(labels, len(sums)).double()
        counts = members.sum(0)
        sums = torch.zeros_like(sums)
        for part in blocks(len(rows), rows.shape[1], rows.device):
            sums += members[part].T @ rows[part].double()
    return labels


def seeds(rows: Bool[Tensor, "rows bits"], clusters: int, *, seed: int = 0) -> Int[Tensor, "_"]:
    """Return rows to start from, by k-means++: each is drawn by its squared distance to the nearest one before.

    One number u in [0, 1) is drawn for each: first row ⌊u·n⌋, then the first whose running sum of squared
    distances exceeds u times their total.
    """
    draws = torch.rand(clusters, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chosen = [int(draws[0] * len(rows))]
    distances = _bits_apart(rows, rows[chosen[0]])
    for draw in draws[1:]:
        running = distances.cumsum(0)
        if not running[-1]:
            break
        chosen.append(int((running <= draw.to(running.device) * running[-1]).sum()))
        distances = torch.minimum(distances, _bits_apart(rows, rows[chosen[-1]]))
    return torch.tensor(chosen, device=rows.device)


def _bits_apart(rows: Tensor, row: Tensor) -> Float[Tensor, "rows"]:
    """Return the squared distance of every row to one of them: the number of bits that differ."""
    return (rows ^ row).sum(1, dtype=torch.float64)


def _nearest(rows: Tensor, sums: Float[Tensor, "k bits"], counts: Float[Tensor, "k"]) -> Int[Tensor, "rows"]:
    """Return the nearest centre S/n of every row x: the least (S·S − 2n·x·S)/n², which is ‖x − S/n‖² − ‖x‖²."""
    squares = sums.square().sum(1)
    labels = []
    for part in blocks(len(rows), rows.shape[1], rows.device):
        products = rows[part].double() @ sums.T
        apart = (squares - 2 * counts * products) / counts.square()
        labels.append(apart.masked_fill(counts == 0, torch.inf).argmin(1))
    return torch.cat(labels)


@dataclass(frozen=True, eq=False)
class AbstractPaths(Record, name="abstract-paths"):
    """Every class's abstract paths, and how many training inputs each stands for; 0 where there is no such path."""

    classes: Int[Tensor, "classes"]
    paths: Bool[Tensor, "classes clusters neurons"]
    sizes: Int[Tensor, "classes clusters"]

    @cached_property
    def on_host(self) -> tuple[Bool[Tensor, "paths neurons"], list[int]]:
        """Return all paths counted through, and where the training inputs of each end, for loops that the host runs."""
        return self.paths.flatten(0, 1).cpu(), self.sizes.flatten().cumsum(0).tolist()

    def place(self, classes: Int[Tensor, "batch"]) -> tuple[Int[Tensor, "batch"], Bool[Tensor, "batch"]]:
        """Return where each class stands here, and whether it is here and has a path."""
        index = torch.searchsorted(self.classes, classes).clamp(max=len(self.classes) - 1)
        return index, (self.classes[index] == classes) & (self.sizes[index] > 0).any(1)

    def likeness(
        self, bits: Bool[Tensor, "batch neurons"], index: Int[Tensor, "batch"], widths: tuple[int, ...]
    ) -> Float[Tensor, "batch clusters parts"]:
        """Return the Jaccard likeness of every path with each abstract path of its class, part by part.

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
        """Return the abstract path of its class that each path is most like by the mean over layers, the first on ties.

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

    traces: TraceStore
    numbers: Int[Tensor, "rows"]
    upper: Float[Tensor, "layers"]

    @cached_property
    def on_host(self) -> Int[Tensor, "rows"]:
        """Return the numbers, where traces are looked up by them."""
        return self.numbers.cpu()


def abstract_paths(
    rows: PathRows, classes: Int[Tensor, "classes"], neurons: int, clusters: int, beta: float
) -> tuple[AbstractPaths, Int[Tensor, "rows"]]:
    """Cluster and abstract every class's paths; return them, and the numbers of each abstract path's inputs in turn."""
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
    """Return, per layer, the least distance to the training inputs of the chosen abstract path, over its neurons.

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
    """Return, per layer, how far the most isolated training input lies from others of its abstract path; 0 for none."""
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
    """Return the least distances from one abstract path's training inputs; those with ``own`` numbers do not count."""
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
