"""From what a module returned to its neurons: ``(batch, neurons)``, copied so that nothing overwrites it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from neuralcov.core.errors import LayerError
from neuralcov.core.kernels import row_means, usable
from neuralcov.tap.inputs import TokenWeights
from neuralcov.tap.kinds import Kind, features_last
from neuralcov.tap.rows import RowOrder, with_batch_first

# Below this many numbers, starting a kernel of our own costs more than it saves.
_LARGE = 1 << 21
_FAST_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class TokenMask(Protocol):
    """What knows which tokens are padding."""

    def weights(self, tokens: int) -> TokenWeights | None:
        """The weights of an axis of so many tokens; ``None`` if all count."""


def to_neurons(
    output: Tensor,
    size: int,
    kind: Kind,
    layer: str,
    padding: TokenMask | None = None,
    *,
    order: RowOrder | None = None,
    total: bool = False,
) -> Tensor:
    """One number per input and feature: all other axes are averaged away.

    Args:
        output: what the module returned.
        size: B, the number of inputs.
        kind: how the module lays its output out.
        layer: the layer's name, for messages.
        padding: the tokens to average over where their axis is averaged.
        order: which rows belong to which input; by default as far as the shape alone tells.
        total: sum the other axes instead, as for relevance, which is shared out among them.
    """
    if output.is_complex() or output.dim() == 0:
        raise LayerError(
            f"layer {layer!r} gave an output of type {output.dtype} and shape {tuple(output.shape)}: "
            "expected real numbers with a batch axis; leave it out with layers="
        )
    if order is not None and output.dim() == 2 and order.axis == 0 and order.per_input == 1 and len(output) == size:
        # The usual case of a small network, where every step costs as much as a layer.
        return output if total else output.detach().to(_wide(output), copy=True)
    batch_first, folded = with_batch_first(output, size, kind, layer, order)
    if batch_first.dim() == 1:
        batch_first = batch_first[:, None]
    channels_first = not features_last(output.shape, kind)
    if channels_first and not folded and not total and batch_first.dim() > (2 if padding is None else 3):
        return _space_average(batch_first)
    axis = (2 if folded else 1) if channels_first else batch_first.dim() - 1
    rows = batch_first.movedim(axis, -1)
    if total:
        return rows if rows.dim() == 2 else rows.flatten(1, -2).sum(1)
    between = rows.shape[1:-1]
    # Of several axes between batch and features the first is that of the tokens, unless another is as long.
    tokens = len(between) > 0 and (folded or between[0] not in between[1:])
    return _average(rows, padding.weights(between[0]) if padding is not None and tokens else None)


def _average(output: Tensor, weights: TokenWeights | None) -> Tensor:
    """Mean over all axes between the first and the last, as float32, or float64 if it was that."""
    dtype = _wide(output)
    if output.dim() == 2:
        return output.detach().to(dtype, copy=True)
    if weights is not None:
        if output.dim() > 3:
            output = output.detach().mean(dim=tuple(range(2, output.dim() - 1)), dtype=dtype)
        padding, share = weights.like(output.device, dtype)
        return torch.einsum("btc,bt->bc", output.detach().to(dtype).masked_fill(padding, 0), share)
    return output.detach().mean(dim=tuple(range(1, output.dim() - 1)), dtype=dtype)


def _space_average(output: Tensor) -> Tensor:
    """The average over space of an image-like output; a large one laid out channel by channel has its own kernel.

    PyTorch's own reduction of many rows of 4 to 64 numbers, which late feature maps are, reaches a fraction of
    the speed of memory.
    """
    plain = output.detach() if output.requires_grad else output
    large = output.numel() >= _LARGE and output.dtype in _FAST_TYPES
    if large and usable(output.device) and output.is_contiguous():
        return row_means(plain.flatten(2))
    return plain.mean(dim=tuple(range(2, output.dim())), dtype=_wide(output))


def _wide(output: Tensor) -> torch.dtype:
    return torch.float64 if output.dtype == torch.float64 else torch.float32
