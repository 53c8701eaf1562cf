"""What folds of a suite tell of cells: the value's error, its value for fewer inputs, and what more of them would hit.

Inputs are dealt to ten folds by their content, so that some folds are a random draw of the inputs, whatever the order
in which these came. Folds are samples as ecologists take them: which of them hit a cell is known, how often is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from neuralcov.core.abundance import Estimate, cells_of_more, error_by_unequal_folds, hit_by_folds
from neuralcov.core.shapes import Int
from neuralcov.criteria.kind_set import FOLD_COUNT

_PATTERNS = 1 << FOLD_COUNT


@dataclass(frozen=True, eq=False)
class CellsByFolds:
    """Hold how many cells were hit by exactly which folds.

    Args:
        patterns: the number of cells, for every set of folds; its place has their bits.
        by_fold: how many inputs each fold has.
        total: all cells, hit or not.
    """

    patterns: Int[Tensor, "sets_of_folds"]
    by_fold: Int[Tensor, "folds"]
    total: int

    @classmethod
    def of(cls, bits: Sequence[Int[Tensor, "..."]], by_fold: Int[Tensor, "folds"], total: int) -> Self:
        """Count the cells of bitmaps that have a word of folds for each cell."""
        counts = [torch.bincount(part.flatten().long(), minlength=_PATTERNS) for part in bits]
        return cls(torch.stack(counts).sum(0).cpu(), by_fold.cpu(), total)

    @property
    def folds(self) -> int:
        """How many folds have inputs."""
        return int((self.by_fold > 0).sum())

    @property
    def hit(self) -> int:
        """How many cells are hit."""
        return int(self.patterns[1:].sum())

    @property
    def error(self) -> float | None:
        """The value's standard error, by leaving out each fold in turn; ``None`` for fewer than two folds.

        Leaving out a fold takes away the cells that only it has hit.
        """
        used = self.by_fold > 0
        alone = self.patterns[1 << torch.arange(FOLD_COUNT)]
        left = ((self.hit - alone).double() / self.total)[used]
        whole = torch.tensor(self.hit / self.total, dtype=torch.float64)
        return error_by_unequal_folds(whole, left, self.by_fold[used]) if len(left) > 1 else None

    def rarefied(self, inputs: int) -> Estimate | None:
        """Return the value of so many of the inputs, drawn fold by fold, and how far such draws differ.

        ``None`` for less than a fold, into which nobody can look, and for more than all.
        """
        seen = int(self.by_fold.sum())
        drawn = self.folds * inputs / seen if seen else 0.0
        if not 1 <= drawn <= self.folds:
            return None
        found = hit_by_folds(self.patterns, self.folds, drawn)
        return Estimate(found.value / self.total, found.error / self.total)

    def forecast(self, inputs: int) -> float | None:
        """Return the value to expect of so many inputs, more than these; ``None`` if some fold has none."""
        if self.folds < FOLD_COUNT:
            return None
        return _foretold(self.patterns, self.folds, self.folds * inputs / int(self.by_fold.sum())) / self.total

    def forecast_error(self, inputs: int) -> float | None:
        """Return the standard error of what `forecast` says, by leaving out each fold in turn."""
        if self.folds < FOLD_COUNT:
            return None
        ahead = inputs / int(self.by_fold.sum())
        places = torch.arange(_PATTERNS)
        left = []
        for fold in range(FOLD_COUNT):
            # What this fold hit is hit by the others alone.
            rest = torch.zeros_like(self.patterns).index_add_(0, places & ~(1 << fold), self.patterns)
            left.append(_foretold(rest, FOLD_COUNT - 1, (FOLD_COUNT - 1) * ahead) / self.total)
        whole = _foretold(self.patterns, FOLD_COUNT, FOLD_COUNT * ahead) / self.total
        left_out = torch.tensor(left, dtype=torch.float64)
        return error_by_unequal_folds(torch.tensor(whole, dtype=torch.float64), left_out, self.by_fold)


def _foretold(patterns: Tensor, folds: int, ahead: float) -> float:
    """Return how many cells so many folds would hit, of which there are ``folds``."""
    sizes = torch.tensor([place.bit_count() for place in range(_PATTERNS)])
    once, twice = (int(patterns[sizes == times].sum()) for times in (1, 2))
    hit, total = int(patterns[1:].sum()), int(patterns.sum())
    return min(total, hit + cells_of_more(once, twice, folds, max(0.0, ahead - folds)))
