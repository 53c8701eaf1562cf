"""Decide which mutants are still what their origin was: few positions changed, or all of them little."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Bool
from neuralcov.fuzz.formats import InputFormat, Pixels, text_lengths

# (mutants, comparison inputs) as they are stored → which mutants are acceptable, (batch,).
Validity = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PixelRule:
    """Accept a mutant if fewer than α of the positions changed, or none by β of the range: DeepHunter's rule.

    A position has changed when any of its channels differs. Both limits are exclusive.

    Args:
        alpha: share of positions.
        beta: share of the range.
        range: the largest value, 1.0 for floats.
        counted: ``"positions"``, or ``"values"``: every channel of a position by itself, so that changes of colour
            count less.
    """

    alpha: float = 0.2
    beta: float = 0.4
    range: float = 255
    counted: str = "positions"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}={getattr(self, name)}: expected a share from 0 to 1")

    def __call__(self, mutants: Tensor, comparisons: Tensor) -> Bool[Tensor, "batch"]:
        """Return which mutants are acceptable."""
        # Bytes are subtracted as bytes: the larger minus the smaller never wraps.
        change = torch.maximum(mutants, comparisons) - torch.minimum(mutants, comparisons)
        if change.dim() > 2 and self.counted == "positions":
            change = change.amax(1)
        change = change.flatten(1)
        little = self.beta * self.range if change.is_floating_point() else _lowest_at(self.beta, self.range)
        return ((change > 0).sum(1) < _lowest_at(self.alpha, change.shape[1])) | (change.amax(1) < little)

    def identity(self) -> dict[str, Any]:
        """Return plain data."""
        told = {} if self.counted == "positions" else {"counted": self.counted}
        return {"rule": "pixels", "alpha": self.alpha, "beta": self.beta, **told}


@dataclass(frozen=True)
class WordRule:
    """Accept a text if the edit distance in words is below α of the length of the origin.

    The distance counts insertions, deletions and substitutions (Levenshtein), so that a dropped word costs 1
    although every word behind it moves.
    """

    alpha: float = 0.2
    padding: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha={self.alpha}: expected a share from 0 to 1")

    def __call__(self, mutants: Tensor, comparisons: Tensor) -> Bool[Tensor, "batch"]:
        """Return which mutants are acceptable."""
        length = (comparisons != self.padding).sum(1)
        limits = [_lowest_at(self.alpha, words) for words in range(comparisons.shape[1] + 1)]
        return edit_distance(mutants, comparisons, self.padding) < torch.tensor(limits, device=length.device)[length]

    def identity(self) -> dict[str, Any]:
        """Return plain data."""
        return {"rule": "words", "alpha": self.alpha}


def edit_distance(texts: Tensor, others: Tensor, padding: int = 0) -> Tensor:
    """Return the Levenshtein distance of rows of tokens, ``(batch,)``, padding at their ends left out.

    Row i of the usual table is made of row i − 1 for all texts at once. The insertions within a row, which come one
    after the other, are a running minimum: from column k to column j they cost j − k, so that the cheapest way into j
    is j plus the least of ``cost(k) − k`` over k ≤ j.

    >>> edit_distance(torch.tensor([[5, 6, 7, 0], [5, 0, 0, 0]]), torch.tensor([[5, 7, 8, 0], [5, 6, 0, 0]])).tolist()
    [2, 1]
    """
    lengths, targets = (text_lengths(rows, padding) for rows in (texts, others))
    columns = torch.arange(others.shape[1] + 1, device=texts.device)
    row = columns.expand(len(texts), -1)
    distance = row.gather(1, targets[:, None])[:, 0]
    for place in range(texts.shape[1]):
        differs = (texts[:, place, None] != others).long()
        best = torch.minimum(row[:, 1:] + 1, row[:, :-1] + differs)
        best = torch.cat([row[:, :1] + 1, best], 1)
        row = (best - columns).cummin(1).values + columns
        distance = torch.where(lengths == place + 1, row.gather(1, targets[:, None])[:, 0], distance)
    return distance


def usual_rule(
    input_format: InputFormat, alpha: float, beta: float, counted: str = "positions"
) -> PixelRule | WordRule:
    """Return the rule for inputs of a format."""
    if isinstance(input_format, Pixels):
        return PixelRule(alpha, beta, range=input_format.levels or 1, counted=counted)
    return WordRule(alpha, getattr(input_format, "padding", 0))


@cache
def _lowest_at(share: float, whole: float) -> int:
    """Return the lowest count that is no longer below a share of a whole, the share taken as it is written.

    A product of floats would not do: 0.07 of 100 comes out above 7.

    >>> _lowest_at(0.07, 100), _lowest_at(0.2, 12), _lowest_at(0.4, 255)
    (7, 3, 102)
    """
    return math.ceil(Fraction(str(share)) * Fraction(str(whole)))
