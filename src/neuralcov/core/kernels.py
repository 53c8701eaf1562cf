"""Ways to Triton kernels for what PyTorch's own operations would spend on memory traffic; each has a plain fallback.

Nothing here changes a result beyond rounding. Kernels are used on CUDA devices where Triton is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.shapes import Float

_BLOCK = 64
_CANDIDATES = 16
_CANDIDATES_AT_ONCE = 4096


@lru_cache(maxsize=1)
def triton_installed() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


def usable(device: torch.device) -> bool:
    """Whether kernels run on ``device``."""
    return device.type == "cuda" and triton_installed()


def stretched(
    scatter: Float[Tensor, "layers width width"],
    scale: Float[Tensor, "layers"],
    apart: Float[Tensor, "batch layers width"],
) -> Float[Tensor, "batch layers"]:
    r"""Per input and layer :math:`\sum_{ij} (|\sigma_{ij} + d_i d_j| - |\sigma_{ij}|)`.

    With :math:`\sigma` = ``scale · scatter``; see :func:`neuralcov.core.spread.spread_gain`. Only the lower half of
    the matrix is read, and the sum is taken in a fixed order.
    """
    # Triton is optional and slow to import.
    kernels = importlib.import_module("neuralcov.core.triton_kernels")
    layers, width = scatter.shape[0], scatter.shape[1]
    size = -(-width // _BLOCK)
    rows, columns = _tiles(size, scatter.device)
    apart = apart.contiguous()
    found = torch.empty(apart.shape[:2], dtype=torch.float64, device=apart.device)
    for start in range(0, len(apart), _CANDIDATES_AT_ONCE):
        some = apart[start : start + _CANDIDATES_AT_ONCE]
        partial = torch.empty(layers, len(rows), len(some), dtype=torch.float64, device=apart.device)
        grid = (len(rows), -(-len(some) // _CANDIDATES), layers)
        kernels.stretched[grid](
            scatter, scale, some, rows, columns, partial, width, len(some), layers, len(rows),
            BLOCK=_BLOCK, CANDIDATES=_CANDIDATES,
        )  # fmt: skip
        found[start : start + len(some)] = partial.sum(1).T
    return found


@lru_cache(maxsize=64)
def _tiles(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and columns of the tiles of a lower triangle."""
    pairs = [(row, column) for row in range(size) for column in range(row + 1)]
    table = torch.tensor(pairs, dtype=torch.int32).to(device)
    return table[:, 0].contiguous(), table[:, 1].contiguous()
