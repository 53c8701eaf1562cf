"""Work on a stack of layers in one pass over its outputs, where kernels run.

Each ``tick_…`` does what its criterion's ``hits`` says, in the same float64 arithmetic; see criteria/bitmap.py.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from neuralcov.core import sanitise
from neuralcov.core.sanitise import LARGEST
from neuralcov.core.shapes import Bool, Float, Shaped
from neuralcov.kernels.operations import triton_available

_BLOCK = 128
_ROWS = 16


def tick_scaled(
    values: Float[Tensor, "batch layers width"],
    valid: Bool[Tensor, "batch layers"],
    extremes: tuple[Float[Tensor, "batch layers"], Float[Tensor, "batch layers"]],
    threshold: float,
    ticks: Bool[Tensor, "layers width"],
) -> None:
    """Tick off, in place, neurons whose output scaled to [0, 1] within their layer exceeds a threshold."""
    least, most = (end.contiguous() for end in extremes)
    _kernels().tick_scaled[_grid(values)](
        values.contiguous(), *_mask(valid), least, most, _number(threshold, values.device), ticks.view(torch.int8),
        *values.shape, ROWS=_ROWS, BLOCK=_BLOCK,
    )  # fmt: skip


def tick_sections(
    values: Float[Tensor, "batch layers width"],
    valid: Bool[Tensor, "batch layers"],
    low: Float[Tensor, "layers width"],
    high: Float[Tensor, "layers width"],
    sections: int,
    ticks: Shaped[Tensor, "layers width cells"],
) -> None:
    """Tick off, in place, the sections of each neuron's range that the outputs lie in; cell 0 stands for none."""
    _kernels().tick_sections[_grid(values)](
        values.contiguous(), *_mask(valid), low.contiguous(), high.contiguous(), ticks.view(torch.int8),
        *values.shape, SECTIONS=sections, ROWS=_ROWS, BLOCK=_BLOCK,
    )  # fmt: skip


def tick_beyond(
    values: Float[Tensor, "batch layers width"],
    valid: Bool[Tensor, "batch layers"],
    low: Float[Tensor, "layers width"],
    high: Float[Tensor, "layers width"],
    ticks: Shaped[Tensor, "layers width *cells"],
) -> None:
    """Tick off, in place, neurons above their range; where each has three cells, cell 1 for those and 2 below it."""
    _kernels().tick_beyond[_grid(values)](
        values.contiguous(), *_mask(valid), low.contiguous(), high.contiguous(), ticks.view(torch.int8),
        *values.shape, BELOW=ticks.dim() == 3, ROWS=_ROWS, BLOCK=_BLOCK,
    )  # fmt: skip


def all_finite(ends: Float[Tensor, "batch ends"]) -> Bool[Tensor, "batch"]:
    """Return which inputs have finite extremes only, those so large that squares overflow not among them."""
    found = torch.empty(len(ends), dtype=torch.bool, device=ends.device)
    if len(ends):
        columns = ends.shape[1]
        block = min(1024, 1 << max(0, columns - 1).bit_length())
        _kernels().all_finite[(len(ends),)](
            ends.contiguous(), found.view(torch.int8), columns, _number(LARGEST, ends.device),
            BOUNDED=ends.dtype == torch.float64, BLOCK=block,
        )  # fmt: skip
    return found


def zero_rows(values: Float[Tensor, "batch layers width"], valid: Bool[Tensor, "batch layers"]) -> None:
    """Set rows that are not valid to 0, in place; of the others nothing is read."""
    size, layers, width = values.shape
    if values.numel():
        block = min(1024, 1 << max(0, width - 1).bit_length())
        mask, *strides = _mask(valid)
        _kernels().zero_rows[(size, layers)](values, mask, layers, width, *strides, BLOCK=block)


def keep_taken(
    old: Float[Tensor, "layers width width"], new: Float[Tensor, "layers width width"], taken: Bool[Tensor, "layers"]
) -> None:
    """Overwrite, in place, the matrix of each layer that is taken; of the others nothing is read."""
    size = old[0].numel()
    _kernels().keep_taken[(-(-size // 2048), len(old))](old, new, _bytes(taken), size, BLOCK=2048)


def centred_rows(
    values: Float[Tensor, "batch layers width"],
    valid: Bool[Tensor, "batch layers"] | None,
    mean: Float[Tensor, "layers width"],
    rows: Float[Tensor, "batch layers width"],
) -> None:
    """Write outputs less the batch's mean into ``rows``, in float64; 0 for what does not take part."""
    if valid is None:
        valid = torch.ones(1, 1, dtype=torch.bool, device=values.device).expand(values.shape[:2])
    _kernels().centred_rows[_grid(values)](
        values.contiguous(), *_mask(valid), mean.contiguous(), rows, *values.shape, ROWS=_ROWS, BLOCK=_BLOCK
    )


def _kernels() -> ModuleType:
    # Triton is optional and slow to import.
    return importlib.import_module("neuralcov.kernels.triton_stacks")


def _grid(values: Tensor) -> tuple[int, int]:
    return -(-values[0].numel() // _BLOCK), -(-len(values) // _ROWS)


def _mask(valid: Tensor) -> tuple[Tensor, int, int]:
    """Return a mask with its strides: one of whole inputs need not be written out for every layer."""
    along_inputs, along_layers = valid.stride()
    return valid.view(torch.int8), along_inputs, along_layers


def _bytes(mask: Tensor) -> Tensor:
    return mask.contiguous().view(torch.int8)


@lru_cache(maxsize=64)
def _number(value: float, device: torch.device) -> Tensor:
    # A plain number would reach the kernel as float32.
    return torch.full((1,), value, dtype=torch.float64, device=device)


# What every batch goes through lies below this package: it is told of the kernels here.
sanitise.kernels.run_on, sanitise.kernels.all_finite, sanitise.kernels.zero_rows = (
    triton_available,
    all_finite,
    zero_rows,
)
