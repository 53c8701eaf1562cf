"""Orders of a pool that are found by greedy search: additional coverage, and diversity of three kinds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Diversity is searched for so many inputs; the others follow by what each would add then.
PICKED = 1_000
_CANDIDATES = 64
_RIDGE = 1e-3
_BYTE = 255


def additional_cells(cells: Tensor) -> Tensor:
    """Order inputs by additional coverage (CAM): each adds most to those before it, then the rest by what each covers.

    Exact, and each cell is looked at once: when an input covers a cell first, all that have it lose it from their gain.

    Args:
        cells: ``(neurons, inputs)`` small whole numbers: the cell of each neuron that an input hits, 0 for none.
    """
    table = cells.cpu().numpy()
    alone = (table > 0).sum(0)
    gains, open_cells = alone.copy(), np.ones((len(table), int(table.max()) + 1), dtype=bool)
    order: list[int] = []
    while True:
        best = int(gains.argmax())
        if gains[best] <= 0:
            break
        order.append(best)
        own = table[:, best]
        new = np.flatnonzero((own > 0) & open_cells[np.arange(len(own)), own])
        open_cells[new, own[new]] = False
        for start in range(0, len(new), _BYTE):
            part = new[start : start + _BYTE]
            # So few are added that bytes hold the sums, which is many times as fast.
            gains -= np.add.reduce((table[part] == own[part, None]).view(np.uint8), axis=0, dtype=np.uint8)
        gains[best] = -1
    return _with_rest(order, torch.from_numpy(alone))


def farthest_first(distances: Tensor, from_mean: Tensor) -> Tensor:
    """Order points by k-centre's greedy search: each as far as can be from those before it.

    Args:
        distances: squared, between all points.
        from_mean: squared distance of each from the mean; the first point is the farthest.
    """
    nearest = from_mean.clone()
    order = torch.empty(len(distances), dtype=torch.long)
    for place in range(len(distances)):
        best = int(nearest.argmax())
        order[place] = best
        nearest = distances[best].clone() if place == 0 else torch.minimum(nearest, distances[best])
        nearest[order[: place + 1].to(nearest.device)] = -1
    return order


def facility_location(similar: Tensor, picked: int = PICKED) -> Tensor:
    """Order inputs by facility location: each raises Σᵢ max over the chosen j of similarity(i, j) most.

    Lazy: a gain found earlier bounds what it is now, so only inputs in front are asked anew.

    Args:
        similar: between all inputs, not negative, the same both ways.
        picked: how many are searched for.
    """
    served = torch.zeros(len(similar), dtype=similar.dtype, device=similar.device)
    bounds = similar.sum(0)
    order: list[int] = []
    while len(order) < min(picked, len(similar)):
        front = bounds.topk(min(_CANDIDATES, len(bounds))).indices
        bounds[front] = (similar[front] - served).clamp(min=0).sum(1)
        bounds[torch.tensor(order, dtype=torch.long, device=bounds.device)] = -1
        best = int(bounds.argmax())
        # One that was not asked just now is only bounded: ask again with it in front.
        while not bool((front == best).any()):
            front = bounds.topk(min(_CANDIDATES, len(bounds))).indices
            bounds[front] = (similar[front] - served).clamp(min=0).sum(1)
            bounds[torch.tensor(order, dtype=torch.long, device=bounds.device)] = -1
            best = int(bounds.argmax())
        order.append(best)
        served = torch.maximum(served, similar[best])
        bounds[best] = -1
    return _with_rest(order, bounds)


def geometric_diversity(similar: Tensor, picked: int = PICKED) -> Tensor:
    """Order inputs by geometric diversity: each multiplies det(S + ε·1) of those chosen most, by Cholesky's steps.

    Args:
        similar: inner products of the inputs' directions.
        picked: how many are searched for.
    """
    steps = min(picked, len(similar))
    left = similar.diagonal() + _RIDGE
    factors = torch.zeros(steps, len(similar), dtype=similar.dtype, device=similar.device)
    order: list[int] = []
    for step in range(steps):
        best = int(left.argmax())
        order.append(best)
        row = similar[best] - factors[:step, best] @ factors[:step]
        row[best] += _RIDGE
        factors[step] = row / left[best].sqrt()
        left = left - factors[step].square()
        left[torch.tensor(order, dtype=torch.long, device=left.device)] = -1
    return _with_rest(order, left)


def _with_rest(order: list[int], worth: Tensor) -> Tensor:
    """Return the order with all others behind it, the worthiest first."""
    first = torch.tensor(order, dtype=torch.long)
    rest = worth.cpu().double().clone()
    rest[first] = -torch.inf
    behind = rest.argsort(descending=True, stable=True)[: len(rest) - len(first)]
    return torch.cat([first, behind])
