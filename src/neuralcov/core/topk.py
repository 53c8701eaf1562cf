"""The k largest neurons of every layer, with ties to the lower index, which ``torch.topk`` leaves open."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float


def among_top_k(values: Float[Tensor, "*rows width"], k: int) -> Bool[Tensor, "*rows width"]:
    """Which entries are among the ``k`` largest of their row, equal ones by rising index.

    >>> among_top_k(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), 2).tolist()
    [[False, True, True, False]]
    """
    if k >= values.shape[-1]:
        return torch.ones_like(values, dtype=torch.bool)
    least = torch.topk(values, k, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    above = values > least
    tied = values == least
    room = k - above.sum(-1, keepdim=True)
    if values.device.type == "cpu" and not bool((tied.sum(-1, keepdim=True) > room).any()):
        return above | tied
    return above | (tied & (tied.cumsum(-1) <= room))
