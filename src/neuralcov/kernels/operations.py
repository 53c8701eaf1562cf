"""Ways to Triton kernels for what PyTorch's own operations would spend on memory traffic; each has a plain fallback.

Nothing here changes a result beyond rounding. Kernels are used on CUDA devices where Triton is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int, Shaped

# Products of bfloat16 in other shapes than multiples of this fall back to kernels for older devices: on an H200
# 680 TFLOP/s were measured for 4,096 rows of a right operand, 258 for 5,436, 98 for 5,433.
ALIGNED = 8

_BLOCK = 64
_CANDIDATES = 16
_CANDIDATES_AT_ONCE = 4096


@lru_cache(maxsize=1)
def triton_installed() -> bool:
    """Return whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def triton_available(device: torch.device) -> bool:
    """Return whether kernels run on ``device``."""
    return device.type == "cuda" and triton_installed()


def absolute_growth(
    scatter: Float[Tensor, "layers width width"],
    scale: Float[Tensor, "layers"],
    apart: Float[Tensor, "batch layers width"],
) -> Float[Tensor, "batch layers"]:
    """Return per input and layer Σ_ij (|σ_ij + d_i·d_j| − |σ_ij|).

    With σ = ``scale · scatter``; what NLC gains by an input is made of it. Only the lower half of the
    matrix is read, and the sum is taken in a fixed order.
    """
    # Triton is optional and slow to import.
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    layers, width = scatter.shape[0], scatter.shape[1]
    size = -(-width // _BLOCK)
    rows, columns = _tiles(size, scatter.device)
    apart = apart.contiguous()
    found = torch.empty(apart.shape[:2], dtype=torch.float64, device=apart.device)
    for start in range(0, len(apart), _CANDIDATES_AT_ONCE):
        some = apart[start : start + _CANDIDATES_AT_ONCE]
        partial = torch.empty(layers, len(rows), len(some), dtype=torch.float64, device=apart.device)
        grid = (len(rows), -(-len(some) // _CANDIDATES), layers)
        kernels.absolute_growth[grid](
            scatter, scale, some, rows, columns, partial, width, len(some), layers, len(rows),
            BLOCK=_BLOCK, CANDIDATES=_CANDIDATES,
        )  # fmt: skip
        found[start : start + len(some)] = partial.sum(1).T
    return found


@lru_cache(maxsize=64)
def _tiles(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the tiles of a lower triangle."""
    pairs = [(row, column) for row in range(size) for column in range(row + 1)]
    table = torch.tensor(pairs, dtype=torch.int32).to(device)
    return table[:, 0].contiguous(), table[:, 1].contiguous()


def row_means(values: Float[Tensor, "*rows length"]) -> Float[Tensor, "*rows"]:
    """Return means along the last axis of a contiguous tensor, in float32; short rows at the speed of memory."""
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    rows, length = values.numel() // values.shape[-1], values.shape[-1]
    means = torch.empty(values.shape[:-1], dtype=torch.float32, device=values.device)
    wide = min(1024, 1 << max(0, length - 1).bit_length())
    tall = max(1, 4096 // wide)
    kernels.row_means[(-(-rows // tall),)](values, means, rows, length, ROWS=tall, LENGTH=wide)
    return means


def middle_means(values: Float[Tensor, "inputs places features"]) -> Float[Tensor, "inputs features"]:
    """Return means over the middle axis of a contiguous tensor, in float32: of tokens, or of space channels last."""
    kernels = importlib.import_module("neuralcov.kernels.triton_stacks")
    inputs, places, features = values.shape
    means = torch.empty(inputs, features, dtype=torch.float32, device=values.device)
    # Few inputs are cut into narrower blocks of features, so that there is work for all of the device.
    wide = min(64 if inputs >= 256 else 32, 1 << max(0, features - 1).bit_length())
    tall = min(2048 // wide, 1 << max(0, places - 1).bit_length())
    blocks = -(-features // wide)
    kernels.middle_means[(inputs * blocks,)](values, means, places, features, blocks, PLACES=tall, FEATURES=wide)
    return means


def split_rows(
    rows: Float[Tensor, "rows width"], centre: Float[Tensor, "width"], *, left: bool
) -> tuple[Shaped[Tensor, "rows wide"], Float[Tensor, "rows"]]:
    """Return rows less the centre as bfloat16 parts side by side, and their squared lengths, in one pass over memory.

    See ``neuralcov.criteria.surprise.nearest.prepared``, also for the zeros at the ends.
    """
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    count, width = rows.shape
    tall, part = count + (0 if left else -count % ALIGNED), width + -width % ALIGNED
    wide = torch.empty(tall, 3 * part, dtype=torch.bfloat16, device=rows.device)
    squares = torch.empty(count, dtype=torch.float32, device=rows.device)
    if count:
        kernels.split_rows[(tall,)](
            rows.contiguous(), centre.contiguous(), wide, squares, count, width, part, LEFT=left, BLOCK=1024
        )
    return wide, squares


def find_flipped(
    table: Int[Tensor, "entries 2"],
    keys: Int[Tensor, "batch 2"],
    words: Int[Tensor, "width 2"],
    signs: Bool[Tensor, "batch width"],
    valid: Bool[Tensor, "batch"],
) -> tuple[Int[Tensor, "batch width"], Bool[Tensor, "batch width"]]:
    """Return where in a table sorted by first word the key with each neuron's sign flipped stands, and if it does.

    Compares first words only; see ``neuralcov.criteria.ss.signs``.
    """
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    at = torch.empty(signs.shape, dtype=torch.int32, device=signs.device)
    found = torch.empty(signs.shape, dtype=torch.int8, device=signs.device)
    steps = len(table).bit_length() + 1
    grid = (len(keys), -(-signs.shape[1] // 256))
    kernels.find_flipped[grid](
        table, len(table), keys, words, signs.contiguous().view(torch.int8), valid.view(torch.int8), at, found,
        signs.shape[1], STEPS=steps, BLOCK=256,
    )  # fmt: skip
    return at, found.view(torch.bool)


def kind_keys_fused(
    projections: Float[Tensor, "layers batch directions"],
    resolution: float,
    mean: Float[Tensor, "layers directions"],
    std: Float[Tensor, "layers directions"],
    offset: Float[Tensor, "layers directions"],
    begin: Int[Tensor, "layers 2"],
    classes: Int[Tensor, "batch"] | None,
) -> tuple[Int[Tensor, "layers batch 2"], Int[Tensor, "layers batch 2"]]:
    """Return the keys of boxes and kinds, in one pass over memory; see ``neuralcov.criteria.lcc.boxes``."""
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    layers, batch, directions = projections.shape
    boxes = torch.empty(layers, batch, 2, dtype=torch.int64, device=projections.device)
    kinds = torch.empty_like(boxes)
    # A plain number would reach the kernel as float32.
    exact = torch.full((1,), resolution, dtype=torch.float64, device=projections.device)
    grid = (-(-batch // 128), layers)
    kernels.kind_keys[grid](
        projections.contiguous(), mean, std, offset, begin, begin if classes is None else classes, boxes, kinds,
        exact, batch, DECISIONS=classes is not None, DIRECTIONS=directions, BLOCK=128,
    )  # fmt: skip
    return boxes, kinds


def absorb_rows(
    groups: Int[Tensor, "batch"],
    every_of: Int[Tensor, "batch words"],
    some_of: Int[Tensor, "batch words"],
    every: Int[Tensor, "groups words"],
    some: Int[Tensor, "groups words"],
) -> None:
    """AND and OR the bits of each input into those of its group, in place."""
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    size = every.shape[1]
    wide = min(64, 1 << max(0, size - 1).bit_length())
    kernels.absorb_rows[(len(groups), -(-size // wide))](groups, every_of, some_of, every, some, size, BLOCK=wide)


def mark_shown(
    found: Bool[Tensor, "batch width"],
    at: Int[Tensor, "batch width"],
    table: Int[Tensor, "entries 2"],
    keys: Int[Tensor, "batch 2"],
    words: Int[Tensor, "width 2"],
    signs: Bool[Tensor, "batch width"],
    group_of_input: Int[Tensor, "batch"],
    group_of_entry: Int[Tensor, "entries"],
    every: Int[Tensor, "groups words"],
    some: Int[Tensor, "groups words"],
    shown: Int[Tensor, "width words"],
) -> None:
    """Add to ``shown`` the bits in which each input's group differs from the one with a neuron flipped, in place.

    ``found`` and ``at`` are what ``find_flipped`` gave; see ``neuralcov.criteria.ss.signs``.
    """
    kernels = importlib.import_module("neuralcov.kernels.triton_kernels")
    grid = (len(keys), -(-signs.shape[1] // 64))
    kernels.mark_shown[grid](
        found.view(torch.int8), at, table, keys, words, signs.contiguous().view(torch.int8), group_of_input,
        group_of_entry, every, some, shown, signs.shape[1], every.shape[1], BLOCK=64,
    )  # fmt: skip


def _kth_largest(values: Tensor, k: int) -> Tensor:
    """Return the ``k``-th largest number of each row, as a column."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        # NumPy finds it several times faster in rows of a few hundred.
        place = values.shape[-1] - k
        return torch.from_numpy(np.partition(values.detach().numpy(), place, axis=-1)[..., place : place + 1])
    return torch.topk(values, k, dim=-1, sorted=False).values.amin(-1, keepdim=True)


def among_top_k(values: Float[Tensor, "*rows width"], k: int) -> Bool[Tensor, "*rows width"]:
    """Return which entries of finite rows are among the ``k`` largest of their row, equal ones by rising index.

    >>> among_top_k(torch.tensor([[1.0, 3.0, 3.0, 3.0]]), 2).tolist()
    [[False, True, True, False]]
    """
    if k >= values.shape[-1]:
        return torch.ones_like(values, dtype=torch.bool)
    least = _kth_largest(values, k)
    above = values > least
    tied = values == least
    room = k - above.sum(-1, keepdim=True)
    if values.device.type == "cpu" and not bool((tied.sum(-1, keepdim=True) > room).any()):
        return above | tied
    return above | (tied & (tied.cumsum(-1) <= room))
