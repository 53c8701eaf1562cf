"""How far a layer's outputs spread, ‖Σ‖₁/m², and how far one more input would move that."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.activations import Stack
from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Float
from neuralcov.kernels.operations import absolute_growth, triton_available
from neuralcov.kernels.stacks import keep_taken
from neuralcov.statistics.moments import LayerMoments

_TILE = 128
_SMALL = 1 << 12
_BLOCK = 512


def covariance_norm(moments: LayerMoments) -> Float[Tensor, "layers"]:
    """Sum of the absolute covariances of each layer, divided by the square of its width."""
    if moments.scatter.device.type == "cpu":
        total = torch.stack([_absolute_sum(matrix) for matrix in moments.scatter])
    else:
        total = torch.linalg.vector_norm(moments.scatter, ord=1, dim=(1, 2))
    return total / (moments.count.clamp(min=1) * moments.width**2)


def _absolute_sum(matrix: Tensor) -> Tensor:
    """Sum of absolute entries on a CPU, where two passes over a block in cache beat the library's norm."""
    if matrix.numel() <= _SMALL:
        return matrix.abs().sum()
    parts = [matrix[rows].abs().sum() for rows in blocks(len(matrix), matrix.shape[1], matrix.device)]
    return torch.stack(parts).sum()


def absorb_if_larger(
    moments: LayerMoments, before: Float[Tensor, "layers"], stack: Stack, *, donate: bool = False
) -> tuple[LayerMoments, Float[Tensor, "layers"]]:
    """Absorb a batch in layers whose norm grows by it or that had none; return moments and norms."""
    count, mean, rows = moments.join(stack)
    if rows.device.type == "cpu":
        grow = _grow_stack if moments.width**2 <= _SMALL else _grow_layer_by_layer
        return grow(moments, before, (count, mean, rows), donate)
    scatter = torch.baddbmm(moments.scatter, rows.mT, rows)
    grown = LayerMoments(count, mean, scatter)
    after = covariance_norm(grown)
    taken = (after > before) | ((moments.count == 0) & (count > 0))
    spread = torch.where(taken, after, before)
    if not donate or not triton_available(scatter.device):
        return grown.choose(moments, taken), spread
    # Most batches are refused: what does not change is neither read nor written.
    keep_taken(moments.scatter, scatter, taken)
    kept = torch.where(taken, count, moments.count), torch.where(taken[:, None], mean, moments.mean)
    return LayerMoments(*kept, moments.scatter), spread


def _grow_stack(
    moments: LayerMoments, before: Tensor, joined: tuple[Tensor, Tensor, Tensor], donate: bool
) -> tuple[LayerMoments, Tensor]:
    """Do so on a CPU for narrow layers, where starting an operation takes longer than its sums: all of them at once."""
    count, mean, rows = joined
    trial = torch.baddbmm(moments.scatter, rows.mT, rows)
    after = trial.abs().sum((1, 2)) / (count.clamp(min=1) * moments.width**2)
    # Plain numbers: Python compares them as float64 too, without starting an operation for each.
    seen, now, values, limits = moments.count.tolist(), count.tolist(), after.tolist(), before.tolist()
    layers = range(len(values))
    taken = [values[i] > limits[i] or (seen[i] == 0 and now[i] > 0) for i in layers]
    if not donate:
        before, moments = (
            before.clone(),
            LayerMoments(moments.count.clone(), moments.mean.clone(), moments.scatter.clone()),
        )
    if not any(taken):
        return moments, before
    if all(taken):
        moments.scatter.copy_(trial)
        return LayerMoments(count, mean, moments.scatter), after
    chosen = torch.tensor(taken)
    moments.scatter[chosen] = trial[chosen]
    kept = torch.where(chosen, count, moments.count), torch.where(chosen[:, None], mean, moments.mean)
    return LayerMoments(*kept, moments.scatter), torch.where(chosen, after, before)


def _grow_layer_by_layer(
    moments: LayerMoments, before: Tensor, joined: tuple[Tensor, Tensor, Tensor], donate: bool
) -> tuple[LayerMoments, Tensor]:
    """Do so on a CPU: half of the products, in blocks that fit its cache, and no copy of what is refused."""
    count, mean, rows = joined
    scatter = moments.scatter if donate else moments.scatter.clone()
    counts, means, after = moments.count.clone(), moments.mean.clone(), before.clone()
    trial = torch.empty(scatter.shape[1:], dtype=torch.float64)
    # Plain numbers: Python compares and divides them as float64 too, without starting an operation for each.
    seen, now, limits = moments.count.tolist(), count.tolist(), before.tolist()
    for layer in range(len(before)):
        total = _try_rows(scatter[layer], rows[layer], trial)
        value = total.item() / (max(now[layer], 1.0) * moments.width**2)
        if value > limits[layer] or (seen[layer] == 0 and now[layer] > 0):
            _keep(scatter[layer], trial)
            counts[layer], means[layer], after[layer] = now[layer], mean[layer], value
    return LayerMoments(counts, means, scatter), after


def _try_rows(scatter: Tensor, rows: Tensor, trial: Tensor) -> Tensor:
    """Put ``scatter + rowsᵀ rows`` into the lower blocks of ``trial``; return the sum of all absolute entries."""
    if len(scatter) <= _BLOCK:
        return _absolute_sum(torch.addmm(scatter, rows.T, rows, out=trial))
    total = torch.zeros((), dtype=torch.float64)
    for top in range(0, len(scatter), _BLOCK):
        block = slice(top, min(top + _BLOCK, len(scatter)))
        left = slice(0, block.stop)
        torch.addmm(scatter[block, left], rows[:, block].T, rows[:, left], out=trial[block, left])
        total += _absolute_sum(trial[block, block])
        total += 2 * _absolute_sum(trial[block, :top])
    return total


def _keep(scatter: Tensor, trial: Tensor) -> None:
    """Copy the lower blocks of ``trial`` into ``scatter``, and mirror them."""
    for top in range(0, len(scatter), _BLOCK):
        block = slice(top, min(top + _BLOCK, len(scatter)))
        scatter[block, : block.stop] = trial[block, : block.stop]
        scatter[:top, block] = trial[block, :top].T


def covariance_gain(
    moments: LayerMoments, values: Float[Tensor, "batch layers width"]
) -> Float[Tensor, "batch layers"]:
    """Return the change of ``covariance_norm`` if each input alone were added; 0 where a layer has seen nothing.

    After one more input, with d its distance from the mean,
    Σ' = n/(n + 1)² · (σ + d·dᵀ) with σ = (n + 1)·Σ, so that

        Σ|Σ'_ij| − Σ|Σ_ij| = n/(n + 1)² · Σ_ij (|σ_ij + d_i·d_j| − |σ_ij|) − 1/(n + 1) · Σ|Σ_ij|

    The sum goes through the lower half of the matrix once for all inputs, in tiles, so that no (batch, m, m)
    tensor exists; differences are formed before they are added up. All in float64.
    """
    count = moments.count
    apart = values.double() - moments.mean
    scale = (count + 1) / count.clamp(min=1)
    growth = absolute_growth if triton_available(apart.device) else absolute_growth_in_tiles
    added = count / (count + 1) ** 2 * growth(moments.scatter, scale, apart)
    change = added / moments.width**2 - covariance_norm(moments) / (count + 1)
    return torch.where(count > 0, change, 0.0)


def absolute_growth_in_tiles(scatter: Tensor, scale: Tensor, apart: Tensor) -> Float[Tensor, "batch layers"]:
    """Return, per input and layer, Σ (|σ + dᵢdⱼ| − |σ|), over tiles of the lower half that stay in cache."""
    total = torch.zeros(apart.shape[:2], dtype=torch.float64, device=apart.device)
    width = scatter.shape[1]
    for layer in range(len(scatter)):
        for top in range(0, width, _TILE):
            rows = slice(top, min(top + _TILE, width))
            sigma = scatter[layer, rows, : rows.stop] * scale[layer]
            left, right = apart[:, layer, rows], apart[:, layer, : rows.stop]
            square, rest = sigma[:, top:], sigma[:, :top]
            total[:, layer] += _growth_of_tile(square, left, right[:, top:])
            if top:
                # Off the diagonal a tile stands for its mirror image too.
                total[:, layer] += 2 * _growth_of_tile(rest, left, right[:, :top])
    return total


def _growth_of_tile(sigma: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Sum the same over one tile."""
    before = sigma.abs()
    if sigma.numel() <= _SMALL:
        parts = [
            ((sigma + left[some, :, None] * right[some, None, :]).abs_() - before).sum((1, 2))
            for some in blocks(len(left), sigma.numel(), left.device)
        ]
        return torch.cat(parts) if parts else left.new_zeros(0)
    # Passes over a tile in cache, input by input; over so few entries float64 loses nothing by subtracting sums.
    moved = torch.empty_like(sigma)
    after = [torch.addr(sigma, *pair, out=moved).abs_().sum() for pair in zip(left, right, strict=True)]
    return torch.stack(after) - before.sum() if after else left.new_zeros(0)
