"""How unsure a model is of an input, read off its output in float64, and average ranks of any score.

With p₁ ≥ p₂ ≥ … the probabilities of the classes: the margin is p₁ − p₂, Gini's impurity 1 − Σ p² (DeepGini, Feng and
others, 2020), the entropy −Σ p·ln p. A model is the less sure, the smaller the margin and the larger the other two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.tap.probabilities import shares_of, wide_scores

_ROWS_AT_ONCE = 1 << 11


@dataclass(frozen=True, eq=False)
class Confidence:
    """What the outputs of a batch say of how sure the model is; NaN where an output is NaN or infinite.

    Args:
        margin: p₁ − p₂.
        gini: 1 − Σ p².
        entropy: −Σ p·ln p.
        first: the most probable class, the lowest of several.
        second: the next one.
        were_probabilities: outputs that were probabilities already, and were taken as such.
    """

    margin: Float[Tensor, "batch"]
    gini: Float[Tensor, "batch"]
    entropy: Float[Tensor, "batch"]
    first: Int[Tensor, "batch"]
    second: Int[Tensor, "batch"]
    were_probabilities: Bool[Tensor, "batch"]


def confidence(output: Any, size: int) -> Confidence | None:
    """Return how sure a model is of each input; ``None`` for an output that has no classes to read.

    Scores become probabilities by the softmax; those of one number z are (0, z). Outputs that are probabilities already
    (none negative, sum 1) stay as they are: a second softmax would level them.

    Args:
        output: what the model gave: (B, C), (B, 1) or (B,), in ``.logits`` or as its first tensor.
        size: B.
    """
    read = wide_scores(output, size)
    if read is None:
        return None
    wide, given = read
    finite = wide.isfinite().all(1)
    shares = shares_of(wide, given)
    # Stable, so that of equal classes the lowest comes first; torch.topk does not promise that.
    ordered = shares.nan_to_num(0).sort(dim=1, descending=True, stable=True)
    logs = torch.where(given[:, None], shares.log(), wide.log_softmax(1))
    entropy = -torch.where(shares > 0, shares * logs, 0.0).sum(1)

    def known(numbers: Tensor) -> Tensor:
        return numbers.masked_fill(~finite, torch.nan)

    return Confidence(
        margin=known(ordered.values[:, 0] - ordered.values[:, 1]),
        gini=known(_gini(ordered.values)),
        entropy=known(entropy),
        first=ordered.indices[:, 0],
        second=ordered.indices[:, 1],
        were_probabilities=given,
    )


def _gini(shares: Float[Tensor, "batch classes"]) -> Float[Tensor, "batch"]:
    """Return 1 − Σ p² as Σ p·(1 − p), with 1 − p₁ summed from the others: it keeps its digits where p₁ is nearly 1."""
    rest = shares[:, 1:].sum(1)
    return shares[:, 0] * rest + (shares[:, 1:] * (1 - shares[:, 1:])).sum(1)


def average_ranks(
    scores: np.ndarray, *, largest_first: bool = False, weight: float = 1.0, onto: np.ndarray | None = None
) -> np.ndarray:
    """Return the place of each score, 1 for the first; equal ones share the mean of theirs, NaN takes the mean of all.

    Beside the scores and the result this takes one sorted copy of the scores, for there may be many.

    Args:
        scores: to rank.
        largest_first: whether the largest comes first.
        weight: what to multiply ranks by.
        onto: numbers to add them to, in place.

    >>> average_ranks(np.array([0.3, 0.1, 0.3, np.nan])).tolist()
    [2.5, 1.0, 2.5, 2.0]
    """
    ranks = np.zeros(len(scores)) if onto is None else onto
    ordered = np.sort(scores)
    # NaN is sorted to the end.
    count = len(scores) - int(np.isnan(scores).sum())
    ordered = ordered[:count]
    for start in range(0, len(scores), _ROWS_AT_ONCE):
        part = scores[start : start + _ROWS_AT_ONCE]
        places = (np.searchsorted(ordered, part, "left") + np.searchsorted(ordered, part, "right") + 1) / 2
        if largest_first:
            places = count + 1 - places
        places[np.isnan(part)] = (count + 1) / 2
        ranks[start : start + _ROWS_AT_ONCE] += weight * places
    return ranks
