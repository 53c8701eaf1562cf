"""Kernels in Triton's own language. Imported only where Triton is installed; see kernels.py."""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803 - Triton reads this source: arguments are pointers and numbers of the device

import triton
import triton.language as tl


@triton.jit
def stretched(
    scatter,
    scale,
    apart,
    rows,
    columns,
    partial,
    width,
    inputs,
    layers,
    tiles,
    BLOCK: tl.constexpr,
    CANDIDATES: tl.constexpr,
):
    """Of one tile of one layer, for a few inputs: the sum of |sigma + d_i d_j| - |sigma|."""
    tile, part, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, column = tl.load(rows + tile), tl.load(columns + tile)
    i = row * BLOCK + tl.arange(0, BLOCK)
    j = column * BLOCK + tl.arange(0, BLOCK)
    inside = (i < width)[:, None] & (j < width)[None, :]
    place = layer.to(tl.int64) * width * width + i[:, None] * width + j[None, :]
    sigma = tl.load(scatter + place, mask=inside, other=0.0) * tl.load(scale + layer)
    before = tl.abs(sigma)
    # Off the diagonal a tile stands for its mirror image too.
    weight = tl.where(row == column, 1.0, 2.0)
    for step in range(CANDIDATES):
        candidate = part * CANDIDATES + step
        if candidate < inputs:
            base = (candidate.to(tl.int64) * layers + layer) * width
            left = tl.load(apart + base + i, mask=i < width, other=0.0)
            right = tl.load(apart + base + j, mask=j < width, other=0.0)
            moved = sigma + left[:, None] * right[None, :]
            total = tl.sum(tl.sum(tl.abs(moved) - before, axis=1), axis=0) * weight
            tl.store(partial + (layer.to(tl.int64) * tiles + tile) * inputs + candidate, total)
