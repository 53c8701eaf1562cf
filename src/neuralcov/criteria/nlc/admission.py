"""Admitting inputs one by one under NLC without leaving the GPU: every one is judged on the state it meets.

For the length of a batch the layers' scatter matrices lie packed as tiles of their lower halves, all layers behind
each other, so that four kernel launches judge and take an input, whatever the number of layers, and nothing waits
for the device in between:

1. ``judge`` sums, tile by tile, the absolute entries that each scatter matrix would have with the input;
2. ``weigh`` adds the tiles of a layer up to the norm that it would have, and so to its gain;
3. ``take`` adds the input to the scatter of every layer that takes it, if the gains together exceed the limit;
4. ``settle`` does the same to counts, means and norms, and notes whether the input was admitted.

``take`` and ``settle`` come to the same verdict, since both add up the same gains in the same order. Kernels of one
stream run one after the other, so that each input is judged on the state that those before it left.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Bool, Float
from neuralcov.criteria.nlc.covariance_norm import covariance_norm
from neuralcov.statistics.moments import LayerMoments

_BLOCK = 64


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which tile belongs where, for the layers of all groups behind each other."""

    layer_of: Tensor
    row_of: Tensor
    column_of: Tensor
    first_tile: Tensor
    tile_count: Tensor
    widths: Tensor
    starts: Tensor


def admit_one_by_one(
    groups: tuple[LayerMoments, ...], batch: Activations, *, growing: bool, min_gain: float
) -> tuple[Bool[Tensor, "batch"], tuple[LayerMoments, ...], tuple[Float[Tensor, "_"], ...]]:
    """Return which inputs of a batch are admitted in order, and the moments and spreads after them.

    Every layer must have seen an input before.
    """
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    plan = _planned(groups)
    tiles = torch.cat([_packed(moments.scatter) for moments in groups])
    mean = torch.cat([moments.mean.reshape(-1) for moments in groups])
    count = torch.cat([moments.count for moments in groups])
    norm = torch.cat([covariance_norm(m) * m.count * m.width**2 for m in groups])
    values = torch.cat([stack.values.double().flatten(1) for stack in batch.stacks], dim=1).contiguous()
    valid = torch.cat([stack.valid_mask() for stack in batch.stacks], dim=1).to(torch.int8).contiguous()
    layers, tile_total = len(count), len(tiles)
    gain, fresh = torch.empty_like(norm), torch.empty_like(norm)
    partial = torch.empty(tile_total, dtype=torch.float64, device=tiles.device)
    admitted = torch.zeros(batch.size, dtype=torch.int8, device=tiles.device)
    # As a tensor: a plain number would reach the kernels in single precision.
    least = torch.full((1,), min_gain, dtype=torch.float64, device=tiles.device)
    size = 1 << max(0, layers - 1).bit_length()
    where = (plan.layer_of, plan.row_of, plan.column_of, plan.widths, plan.starts)
    rule = {"GROWING": growing, "BLOCK": _BLOCK, "LAYERS": size}
    for index in range(batch.size):
        row, takes_part = values[index], valid[index]
        kernels.judge[(tile_total,)](tiles, *where, count, mean, row, partial, BLOCK=_BLOCK)
        kernels.weigh[(layers,)](
            plan.first_tile, plan.tile_count, plan.widths, count, norm, partial, takes_part, gain, fresh, BLOCK=128
        )
        kernels.take[(tile_total,)](tiles, *where, count, mean, row, gain, takes_part, least, layers, **rule)
        kernels.settle[(layers,)](
            plan.widths, plan.starts, count, mean, row, norm, fresh, gain, takes_part, admitted[index:],
            least, layers, **rule,
        )  # fmt: skip
    return admitted.bool(), *_unpacked(groups, tiles, mean, count, norm)


def _planned(groups: tuple[LayerMoments, ...]) -> _Plan:
    device = groups[0].mean.device
    rows, columns, layer_of, first, counts, widths, starts = ([] for _ in range(7))
    layer = neuron = tile = 0
    for moments in groups:
        blocks = -(-moments.width // _BLOCK)
        triangle = torch.tril_indices(blocks, blocks)
        for _ in range(len(moments.count)):
            rows.append(triangle[0])
            columns.append(triangle[1])
            layer_of.append(torch.full((triangle.shape[1],), layer))
            first.append(tile)
            counts.append(triangle.shape[1])
            widths.append(moments.width)
            starts.append(neuron)
            layer, neuron, tile = layer + 1, neuron + moments.width, tile + triangle.shape[1]

    def table(numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32).to(device)

    def joined(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts).to(device, torch.int32)

    return _Plan(
        joined(layer_of), joined(rows), joined(columns), table(first), table(counts), table(widths), table(starts)
    )


def _packed(scatter: Tensor) -> Tensor:
    """Return the lower tiles of every matrix, padded with zeros: ``(layers · tiles, 64, 64)``."""
    layers, width = scatter.shape[:2]
    blocks = -(-width // _BLOCK)
    padded = torch.nn.functional.pad(scatter, (0, blocks * _BLOCK - width) * 2)
    tiled = padded.view(layers, blocks, _BLOCK, blocks, _BLOCK).transpose(2, 3)
    row, column = torch.tril_indices(blocks, blocks, device=scatter.device)
    return tiled[:, row, column].reshape(-1, _BLOCK, _BLOCK)


def _unpacked(
    groups: tuple[LayerMoments, ...], tiles: Tensor, mean: Tensor, count: Tensor, norm: Tensor
) -> tuple[tuple[LayerMoments, ...], tuple[Tensor, ...]]:
    found, spreads = [], []
    tile = neuron = layer = 0
    for moments in groups:
        layers, width = moments.mean.shape
        blocks = -(-width // _BLOCK)
        row, column = torch.tril_indices(blocks, blocks, device=tiles.device)
        matrix = tiles.new_zeros(layers, blocks, blocks, _BLOCK, _BLOCK)
        here = layers * len(row)
        matrix[:, row, column] = tiles[tile : tile + here].view(layers, len(row), _BLOCK, _BLOCK)
        side = blocks * _BLOCK
        lower = matrix.transpose(2, 3).reshape(layers, side, side)[:, :width, :width].tril()
        scatter = lower + lower.tril(-1).mT
        own = slice(layer, layer + layers)
        means = mean[neuron : neuron + layers * width].view(layers, width)
        found.append(LayerMoments(count[own], means, scatter))
        spreads.append(norm[own] / (count[own] * width**2))
        tile, neuron, layer = tile + here, neuron + layers * width, layer + layers
    return tuple(found), tuple(spreads)
