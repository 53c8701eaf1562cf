"""The k largest neurons of every layer, with ties to the lower index, which ``torch.topk`` leaves open."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Float, Int

_LOW_32 = (1 << 32) - 1


def top_k(values: Float[Tensor, "*rows width"], k: int) -> Int[Tensor, "*rows k"]:
    """Indices of the ``k`` largest entries of each row, largest first, equal ones by rising index.

    >>> top_k(torch.tensor([[1.0, 3.0, 3.0, 2.0]]), 2)
    tensor([[1, 2]])
    """
    k = min(k, values.shape[-1])
    if values.dtype == torch.float64:
        return values.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    keys = _rank(values.float()) << 32
    falling = torch.arange(values.shape[-1] - 1, -1, -1, device=values.device)
    best = torch.topk(keys | falling, k, dim=-1).values
    return values.shape[-1] - 1 - (best & _LOW_32)


def _rank(values: Tensor) -> Tensor:
    """Integers in the order of the floats: a float's bits, with those of negative numbers turned around."""
    # Adding zero makes -0.0 into +0.0: they are equal as numbers and must be equal as integers.
    bits = (values + 0.0).view(torch.int32).long()
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
