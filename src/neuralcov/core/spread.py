"""How far a layer's outputs spread, ‖Σ‖₁/m², and how far one more input would move that."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.moments import Moments
from neuralcov.core.shapes import Float
from neuralcov.core.sizes import blocks

_TILE = 256


def spread(moments: Moments) -> Float[Tensor, "layers"]:
    """Sum of the absolute covariances of each layer, divided by the square of its width."""
    total: Tensor = torch.linalg.vector_norm(moments.scatter, ord=1, dim=(1, 2))
    return total / (moments.count.clamp(min=1) * moments.width**2)


def spread_gain(moments: Moments, values: Float[Tensor, "batch layers width"]) -> Float[Tensor, "batch layers"]:
    r"""Change of :func:`spread` if each input alone were added; 0 where a layer has seen nothing.

    After one more input, with d its distance from the mean,
    :math:`\Sigma' = \frac{n}{n+1}\Sigma + \frac{n}{(n+1)^2} d d^\top`, so that with s the signs of Σ

    .. math:: \sum|\Sigma'_{ij}| - \sum|\Sigma_{ij}| = \frac{n}{(n+1)^2}\Big(d^\top s\,d
              + 2\sum_{ij}\max(0,\,-s_{ij}d_id_j - (n+1)|\Sigma_{ij}|)\Big) - \frac{1}{n+1}\sum|\Sigma_{ij}|

    The first term is a matrix product for all inputs together; the second, entries whose sign the
    input turns, is summed over tiles of the upper triangle, so that no (batch, m, m) tensor exists.
    All in float64.
    """
    columns = [
        _layer_gain(moments.count[i], moments.covariance_of(i), values[:, i].double() - moments.mean[i])
        for i in range(values.shape[1])
    ]
    return torch.stack(columns, dim=1)


def _layer_gain(count: Tensor, covariance: Tensor, apart: Tensor) -> Tensor:
    width = covariance.shape[0]
    # Never 0: what is added to a zero makes it larger in absolute value, whichever sign the zero is given.
    signs = torch.ones_like(covariance).copysign_(covariance)
    magnitude = covariance.abs()
    along = ((apart @ signs) * apart).sum(1)
    bars = magnitude * (count + 1)
    turned = torch.zeros_like(along)
    for top in range(0, width, _TILE):
        rows = slice(top, min(top + _TILE, width))
        turned += _turned(apart, rows, signs[rows, rows], bars[rows, rows])
        if rows.stop < width:
            right = slice(rows.stop, width)
            turned += 2 * _turned(apart, rows, signs[rows, right], bars[rows, right], right)
    added = count / (count + 1) ** 2 * (along + 2 * turned)
    change = (added - magnitude.sum() / (count + 1)) / width**2
    return torch.where(count > 0, change, 0.0)


def _turned(apart: Tensor, rows: slice, signs: Tensor, bars: Tensor, columns: slice | None = None) -> Tensor:
    """Per input, the sum over one tile of max(0, −s·dᵢ·dⱼ − bar)."""
    left, right = apart[:, rows], apart[:, columns or rows]
    parts = []
    for some in blocks(apart.shape[0], signs.numel(), apart.device):
        products = left[some, :, None] * right[some, None, :]
        excess = torch.addcmul(bars, signs, products).clamp_(max=0)
        parts.append(-excess.sum((1, 2)))
    return torch.cat(parts) if parts else apart.new_zeros(0)
