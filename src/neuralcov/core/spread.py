"""How far a layer's outputs spread, ‖Σ‖₁/m², and how far one more input would move that."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.activations import Stack
from neuralcov.core.moments import Moments
from neuralcov.core.shapes import Float
from neuralcov.core.sizes import blocks

_TILE = 256
_BLOCK = 512


def spread(moments: Moments) -> Float[Tensor, "layers"]:
    """Sum of the absolute covariances of each layer, divided by the square of its width."""
    total: Tensor = torch.linalg.vector_norm(moments.scatter, ord=1, dim=(1, 2))
    return total / (moments.count.clamp(min=1) * moments.width**2)


def grow(
    moments: Moments, before: Float[Tensor, "layers"], stack: Stack, *, donate: bool = False
) -> tuple[Moments, Float[Tensor, "layers"]]:
    """Moments and spread after a batch that a layer takes only if its spread grows by it, or if it is the first."""
    count, mean, rows = moments.join(stack)
    if rows.device.type == "cpu":
        return _grow_layer_by_layer(moments, before, (count, mean, rows), donate)
    scatter = torch.baddbmm(moments.scatter, rows.mT, rows)
    grown = Moments(count, mean, scatter)
    after = spread(grown)
    taken = (after > before) | ((moments.count == 0) & (count > 0))
    return grown.choose(moments, taken), torch.where(taken, after, before)


def _grow_layer_by_layer(
    moments: Moments, before: Tensor, joined: tuple[Tensor, Tensor, Tensor], donate: bool
) -> tuple[Moments, Tensor]:
    """The same on a CPU: half of the products, in blocks that fit its cache, and no copy of what is refused."""
    count, mean, rows = joined
    scatter = moments.scatter if donate else moments.scatter.clone()
    counts, means, after = moments.count.clone(), moments.mean.clone(), before.clone()
    trial = torch.empty(scatter.shape[1:], dtype=torch.float64)
    for layer in range(len(before)):
        total = _try_rows(scatter[layer], rows[layer], trial)
        value = total / (count[layer].clamp(min=1) * moments.width**2)
        if value > before[layer] or (moments.count[layer] == 0 and count[layer] > 0):
            _keep(scatter[layer], trial)
            counts[layer], means[layer], after[layer] = count[layer], mean[layer], value
    return Moments(counts, means, scatter), after


def _try_rows(scatter: Tensor, rows: Tensor, trial: Tensor) -> Tensor:
    """Put ``scatter + rowsᵀ rows`` into the lower blocks of ``trial``; return the sum of all absolute entries."""
    total = torch.zeros((), dtype=torch.float64)
    for top in range(0, len(scatter), _BLOCK):
        block = slice(top, min(top + _BLOCK, len(scatter)))
        left = slice(0, block.stop)
        torch.addmm(scatter[block, left], rows[:, block].T, rows[:, left], out=trial[block, left])
        total += torch.linalg.vector_norm(trial[block, block], ord=1)
        total += 2 * torch.linalg.vector_norm(trial[block, :top], ord=1)
    return total


def _keep(scatter: Tensor, trial: Tensor) -> None:
    """Copy the lower blocks of ``trial`` into ``scatter``, and mirror them."""
    for top in range(0, len(scatter), _BLOCK):
        block = slice(top, min(top + _BLOCK, len(scatter)))
        scatter[block, : block.stop] = trial[block, : block.stop]
        scatter[:top, block] = trial[block, :top].T


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
