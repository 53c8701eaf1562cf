"""k-means on bit vectors, in exact arithmetic: the same clusters on every device and at every block size.

Bits are 0 or 1, so squared distances are whole numbers, and to a centre, the mean of n vectors, whole numbers
over n². In float64 these are exact below 2⁵³, and equal distances compare as equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.core.sizes import blocks


def k_means(rows: Bool[Tensor, "rows bits"], clusters: int, *, seed: int = 0, rounds: int = 100) -> Int[Tensor, "rows"]:
    """The cluster of every row, by Lloyd's algorithm from a k-means++ start.

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
    """Rows to start from, by k-means++: each is drawn by its squared distance to the nearest one before.

    One number u in [0, 1) is drawn for each: first row ⌊u·n⌋, then the first whose running sum of squared
    distances exceeds u times their total.
    """
    draws = torch.rand(clusters, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    chosen = [int(draws[0] * len(rows))]
    distances = _apart(rows, rows[chosen[0]])
    for draw in draws[1:]:
        running = distances.cumsum(0)
        if not running[-1]:
            break
        chosen.append(int((running <= draw.to(running.device) * running[-1]).sum()))
        distances = torch.minimum(distances, _apart(rows, rows[chosen[-1]]))
    return torch.tensor(chosen, device=rows.device)


def _apart(rows: Tensor, row: Tensor) -> Float[Tensor, "rows"]:
    """Squared distance of every row to one of them: the number of bits that differ."""
    return (rows ^ row).sum(1, dtype=torch.float64)


def _nearest(rows: Tensor, sums: Float[Tensor, "k bits"], counts: Float[Tensor, "k"]) -> Int[Tensor, "rows"]:
    """The nearest centre S/n of every row x: the least (S·S − 2n·x·S)/n², which is ‖x − S/n‖² − ‖x‖²."""
    squares = sums.square().sum(1)
    labels = []
    for part in blocks(len(rows), rows.shape[1], rows.device):
        products = rows[part].double() @ sums.T
        apart = (squares - 2 * counts * products) / counts.square()
        labels.append(apart.masked_fill(counts == 0, torch.inf).argmin(1))
    return torch.cat(labels)
