"""Moments of training data apart for each fold, for values that are corrected by the jackknife."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool
from neuralcov.statistics.moments import Moments, empty_moments, merge_all

FoldMoments = tuple[tuple[Moments, ...], ...]


@dataclass(frozen=True, eq=False)
class Folds(Record, name="folds"):
    """Moments by fold, and in each by group of layers."""

    moments: FoldMoments

    @classmethod
    def empty(cls, name: str, layout: Layout) -> Self:
        """Return folds of no input, as many as ``name`` says: ``folds(10)``."""
        return cls(tuple(empty_moments(layout) for _ in range(int(name[len("folds(") : -1]))))

    @property
    def name(self) -> str:
        """The name under which criteria learn it."""
        return f"folds({len(self.moments)})"

    def observe(self, batch: Activations) -> Folds:
        """Take a batch in. Overwrites this one, which calibration alone holds."""
        fold_of = batch.folds(len(self.moments))
        return Folds(
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


def union(folds: FoldMoments) -> tuple[Moments, ...]:
    """Return the moments of all folds together."""
    whole = folds[0]
    for part in folds[1:]:
        whole = merge_all(whole, part)
    return whole


def leaving_out(folds: FoldMoments, base: tuple[Moments, ...] | None = None) -> Iterator[tuple[Moments, ...]]:
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
