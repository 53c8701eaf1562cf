"""The mean of every input's numbers and of their squares, channel by channel: their scale, and their colours."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from neuralcov.core.shapes import Float
from neuralcov.tap.members import Members, is_plain, leaves_of

# An axis of so many is taken for the colours of images.
_CHANNELS = (2, 3, 4)
# Images are batch, channels, height, width.
_IMAGE_AXES = 4


def moments_of(members: Members) -> Float[Tensor, "batch channels 2"] | None:
    """Return mean and mean square of each input and channel, without waiting for the device.

    Of several tensors the first counts that holds bytes or fractions, a row for each input. Images have a channel for
    each of their two to four colours, first or last; other inputs are one channel. Tokens have no scale: ``None``.
    """
    rows = _rows(members)
    if rows is None:
        return None
    with torch.no_grad():
        return _moments(rows.detach())


def _rows(members: Members) -> Tensor | None:
    inputs = members.inputs
    if isinstance(inputs, PackedSequence) or members.listed or not members.size:
        return None
    if isinstance(inputs, Mapping):
        # Masks of ones and zeros are no part of what a model looks at.
        inputs = {name: inputs[name] for name in sorted(inputs, key=str) if "mask" not in str(name)}
    for leaf in leaves_of(inputs):
        if isinstance(leaf, Tensor) and is_plain(leaf) and leaf.dim() > 1 and leaf.numel() and _is_scaled(leaf.dtype):
            axis = members.axis_of(leaf)
            if axis is not None:
                return leaf.movedim(axis, 0) if axis else leaf
    return None


def _is_scaled(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype == torch.uint8


def _moments(rows: Tensor) -> Tensor:
    # Half precision overflows on sums, bytes on squares; doubles stay what they are.
    numbers = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    if numbers.dim() == _IMAGE_AXES and numbers.shape[1] in _CHANNELS:
        flat = numbers.flatten(2)
    elif numbers.dim() == _IMAGE_AXES and numbers.shape[3] in _CHANNELS:
        flat = numbers.flatten(1, 2).transpose(1, 2)
    else:
        flat = numbers.flatten(1)[:, None]
    return torch.stack([flat.mean(2), flat.square().mean(2)], dim=2)
