"""Moments of training data apart for each fold, for values that are corrected by the jackknife."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool
from neuralcov.statistics.moments import LayerMoments, empty_moments, merge_all
from neuralcov.statistics.statistic import INSTEAD, Statistic

FoldMoments = tuple[tuple[LayerMoments, ...], ...]


@dataclass(frozen=True, eq=False)
class MomentsByFold(Record, name="folds"):
    """Moments by fold, and in each by group of layers."""

    moments: FoldMoments

    @classmethod
    def empty(cls, count: int, layout: Layout) -> Self:
        """Return so many folds of no input."""
        return cls(tuple(empty_moments(layout) for _ in range(count)))

    def observe(self, batch: Activations) -> MomentsByFold:
        """Take a batch in. Overwrites this one, which calibration alone holds."""
        fold_of = batch.folds(len(self.moments))
        return MomentsByFold(
            tuple(
                tuple(m.absorb(among(s, fold_of == fold), donate=True) for m, s in zip(part, batch.stacks, strict=True))
                for fold, part in enumerate(self.moments)
            )
        )


def among(stack: Stack, inputs: Bool[Tensor, "batch"]) -> Stack:
    """Return the stack with only some of its inputs valid."""
    chosen = inputs[:, None].expand(-1, stack.values.shape[1])
    valid = chosen if stack.valid is None else stack.valid & chosen
    return replace(stack, values=stack.values.masked_fill(~valid[:, :, None], 0), valid=valid, least=None, most=None)


def union(folds: FoldMoments) -> tuple[LayerMoments, ...]:
    """Return the moments of all folds together."""
    whole = folds[0]
    for part in folds[1:]:
        whole = merge_all(whole, part)
    return whole


def leaving_out(folds: FoldMoments, base: tuple[LayerMoments, ...] | None = None) -> Iterator[tuple[LayerMoments, ...]]:
    """Yield the moments of all folds but the first, all but the second, and so on, each joined with ``base``.

    By merging alone, half and half: taking a fold away from the whole would lose what the others span to rounding where
    that fold reaches far.
    """
    if len(folds) == 1:
        if base is not None:
            yield base
        return
    left, right = folds[: len(folds) // 2], folds[len(folds) // 2 :]
    for part, other in ((left, right), (right, left)):
        joined = union(other)
        yield from leaving_out(part, joined if base is None else merge_all(base, joined))


@dataclass(frozen=True)
class Folds(Statistic[MomentsByFold], name="folds"):
    """Gather moments apart for each of so many folds, of the held-out inputs where there are some."""

    count: int

    held_out = INSTEAD

    @override
    def init(self, layout: Layout) -> MomentsByFold:
        return MomentsByFold.empty(self.count, layout)

    @override
    def observe(self, gathered: MomentsByFold, batch: Activations) -> MomentsByFold:
        return gathered.observe(batch)
