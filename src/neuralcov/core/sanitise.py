"""Which inputs of a batch are finite, and their outputs with 0 in place of what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float

LARGEST = 1e140
"""Sums of squares of larger numbers are beyond float64."""

Group = tuple[Tensor, Tensor | None, tuple[Tensor, Tensor]]
"""The outputs of the layers of one width, which of them are present, and each row's extremes."""


@dataclass
class _Kernels:
    """Hold what does the same in one kernel, where ``neuralcov.kernels.stacks`` has put it."""

    run_on: Callable[[torch.device], bool] = field(default=lambda device: False)
    all_finite: Callable[[Tensor], Tensor] | None = None
    zero_rows: Callable[[Tensor, Tensor], None] | None = None


kernels = _Kernels()


def finite_inputs(groups: Sequence[Group]) -> Bool[Tensor, "batch"]:
    """Return which inputs are finite everywhere they are present.

    NaN and infinity pass through to a row's extremes, so that looking at these is enough. A float64 so large that
    statistics of it would be infinite counts as infinite itself.
    """
    ends = torch.cat([end for _, _, extremes in groups for end in extremes], dim=1)
    everywhere = all(present is None for _, present, _ in groups)
    if everywhere and kernels.all_finite is not None and kernels.run_on(ends.device):
        return kernels.all_finite(ends)
    good = torch.isfinite(ends)
    if ends.dtype == torch.float64:
        good &= ends.abs() <= LARGEST
    if not everywhere:
        absent = [
            torch.zeros_like(extremes[0], dtype=torch.bool) if present is None else ~present
            for _, present, extremes in groups
            for _ in extremes
        ]
        good |= torch.cat(absent, dim=1)
    return good.all(1)


def sanitised(
    values: Float[Tensor, "batch layers width"],
    present: Bool[Tensor, "batch layers"] | None,
    extremes: tuple[Tensor, Tensor],
    finite: Bool[Tensor, "batch"] | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Return values that are 0 where not valid, the mask if one is needed, and the extremes.

    Args:
        values: outputs that nobody else has; they may be overwritten.
        present: which rows there are, all if ``None``.
        extremes: of each row.
        finite: which inputs are finite, all if ``None``.
    """
    if present is None and finite is None:
        return values, None, *extremes
    valid = present
    if finite is not None:
        valid = finite[:, None].expand(values.shape[:2]) if present is None else present & finite[:, None]
    assert valid is not None
    if kernels.zero_rows is not None and kernels.run_on(values.device):
        kernels.zero_rows(values, valid)
        return values, valid, *extremes
    return values.masked_fill(~valid[:, :, None], 0), valid, *extremes
