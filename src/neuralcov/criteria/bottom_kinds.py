"""Bottom-k: of all kinds of a column those of smallest key, which stand for the others.

Keys are as good as random, so that the kinds whose keys lie below a limit are a random sample of all, and the limit
says which share of them. With the k smallest kept, let τ be the k-th as a share of the range of keys: the k − 1 below
it are a sample of the share τ, and a sum over all kinds is that over the sample divided by τ, without bias and with a
relative error of about 1/√k (Cohen and Kaplan, 2007). Fewer than k are all there are.

The k smallest of a union are among the k smallest of its parts; and a kind among them was so from its first input on,
since τ only falls. So sketches merge exactly, in any order, and the counts of the kinds that are kept are complete.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.kind_set import ABSENT, KindSet

_LOWEST, _RANGE = -(2.0**63), 2.0**64


def bottom(seen: KindSet, kept: int, columns: int) -> KindSet:
    """Return a set of the kinds of smallest key, so many of each column. May wait for the device."""
    if len(seen.keys) <= kept:
        return seen
    if seen.columns is None:
        return seen.each(lambda part: part[:kept])
    inside = _rank(seen, columns) < kept
    if bool(inside.all()):
        return seen
    return seen.each(lambda part: part[inside])


def sample(seen: KindSet, kept: int, columns: int) -> tuple[Bool[Tensor, "room"], Float[Tensor, "columns"]]:
    """Return which kinds of a sketch are a sample of all, and the share of all that they are, by column."""
    present = seen.present()
    column = torch.zeros_like(seen.counts) if seen.columns is None else seen.columns.long()
    number = torch.zeros(columns, dtype=torch.int64, device=column.device).index_add_(0, column, present.long())
    largest = torch.full((columns,), -ABSENT - 1, dtype=torch.int64, device=column.device)
    words = torch.where(present, seen.keys[:, 0], -ABSENT - 1)
    largest = largest.scatter_reduce_(0, column, words, "amax")
    full = number >= kept
    share = torch.where(full, (largest.double() - _LOWEST) / _RANGE, 1.0)
    return present & ~(full[column] & (seen.keys[:, 0] >= largest[column])), share


def _rank(seen: KindSet, columns: int) -> Int[Tensor, "room"]:
    """Return the place of each kind among those of its column, the smallest key first."""
    assert seen.columns is not None
    column = seen.columns.long()
    order = column.argsort(stable=True)
    start = torch.bincount(column, minlength=columns).cumsum(0) - torch.bincount(column, minlength=columns)
    rank = torch.empty_like(column)
    rank[order] = torch.arange(len(column), device=column.device) - start[column[order]]
    return rank
