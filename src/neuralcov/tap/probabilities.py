"""Probabilities of the classes, read off what a model gave, in float64; how far an input is from being misread."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.tap.outputs import has_classes, scores_of

# How far probabilities in half precision may be from a sum of 1.
_NEARLY_ONE = 1e-3
# A target that stands for the class the model predicts.
PREDICTED = -2


def wide_scores(output: Any, size: int) -> tuple[Float[Tensor, "batch classes"], Bool[Tensor, "batch"]] | None:
    """Return scores in float64, and which rows are probabilities already; ``None`` where there are no classes.

    Scores of one number z are (0, z). Rows are probabilities if none is negative and their sum is 1.

    Args:
        output: what the model gave: (B, C), (B, 1) or (B,), in ``.logits`` or as its first tensor.
        size: B.
    """
    scores = scores_of(output)
    if scores is None or not has_classes(scores, size) or scores.is_complex():
        return None
    wide = scores.detach().double()
    if wide.dim() == 1 or wide.shape[1] == 1:
        wide = torch.stack([torch.zeros_like(wide.reshape(size)), wide.reshape(size)], dim=1)
        return wide, torch.zeros(size, dtype=torch.bool, device=wide.device)
    return wide, (wide >= 0).all(1) & ((wide.sum(1) - 1).abs() <= _NEARLY_ONE)


def shares_of(wide: Float[Tensor, "batch classes"], given: Bool[Tensor, "batch"]) -> Float[Tensor, "batch classes"]:
    """Return probabilities: the softmax of scores; rows that are probabilities stay, a second softmax levels them."""
    return torch.where(given[:, None], wide / wide.sum(1, keepdim=True), wide.softmax(1))


def margins(output: Any, targets: Int[Tensor, "batch"]) -> tuple[Float[Tensor, "batch"], Int[Tensor, "batch"]] | None:
    """Return, per input, the probability of its class minus that of the strongest other one, and that other class.

    The class of a target ``PREDICTED`` is the one predicted. Below 0 the input is misread. NaN and −1 where an
    output is not finite or a class is unknown or not among the outputs; ``None`` for an output that has no classes.

    >>> found = margins(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]), torch.tensor([1, 2]))
    >>> [[round(float(number), 3) for number in numbers] for numbers in found]
    [[0.421, -0.864], [2.0, 0.0]]
    """
    read = wide_scores(output, len(targets))
    if read is None:
        return None
    shares = shares_of(*read)
    targets = targets.to(shares.device)
    targets = torch.where(targets == PREDICTED, shares.nan_to_num(0).argmax(1), targets)
    known = (targets >= 0) & (targets < shares.shape[1]) & shares.isfinite().all(1)
    places = targets.clamp(0, shares.shape[1] - 1)[:, None]
    own = shares.gather(1, places)[:, 0]
    # The lowest of equal classes, as for predictions.
    rivals = shares.scatter(1, places, -1.0).max(1)
    return (own - rivals.values).masked_fill(~known, torch.nan), rivals.indices.masked_fill(~known, -1)
