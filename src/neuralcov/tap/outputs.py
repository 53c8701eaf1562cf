"""From what a module returned to its neurons: ``(batch, neurons)``, copied so that nothing overwrites it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.findings import Finding
from neuralcov.core.shapes import Int
from neuralcov.kernels.operations import middle_means, row_means, triton_available
from neuralcov.tap.axes import OutputAxes, features_last
from neuralcov.tap.inputs import TokenWeights, first_tensor
from neuralcov.tap.rows import RowOrder, with_batch_first
from neuralcov.tap.shards import whole_tensor

MEAN, LAST, MAX, TOKENS = "mean", "last", "max", "tokens"
POOLS = (MEAN, LAST, MAX, TOKENS)

# Below this many numbers, starting a kernel of our own costs more than it saves.
_LARGE = 1 << 21
_FAST_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class TokenMask(Protocol):
    """What knows which tokens are padding."""

    def weights(self, tokens: int) -> TokenWeights | None:
        """Return the weights of an axis of so many tokens; ``None`` if all count."""


def to_neurons(
    output: Tensor,
    size: int,
    kind: OutputAxes,
    layer: str,
    padding: TokenMask | None = None,
    *,
    order: RowOrder | None = None,
    total: bool = False,
    pool: str = MEAN,
) -> Tensor:
    """Return one number per input and feature: all other axes are averaged away.

    With ``pool="tokens"`` the axis of tokens stays where there is one: ``(batch, tokens, features)``, padding included.

    Args:
        output: what the module returned.
        size: B, the number of inputs.
        kind: how the module lays its output out.
        layer: the layer's name, for messages.
        padding: the tokens to average over where their axis is averaged.
        order: which rows belong to which input; by default as far as the shape alone tells.
        total: sum the other axes instead, as for relevance, which is shared out among them.
        pool: what is made of an input's tokens: their mean, the last of them, their largest number, or nothing.
    """
    if output.is_complex() or output.dim() == 0:
        raise LayerError(
            f"layer {layer!r} gave an output of type {output.dtype} and shape {tuple(output.shape)}: "
            "expected real numbers with a batch axis; leave it out with layers="
        )
    batch_first, folded = with_batch_first(output, size, kind, layer, order)
    if batch_first.dim() == 1:
        batch_first = batch_first[:, None]
    channels_first = not features_last(output.shape, kind)
    if channels_first and not folded and not total and batch_first.dim() > (2 if padding is None else 3):
        return space_average(batch_first)
    axis = (2 if folded else 1) if channels_first else batch_first.dim() - 1
    rows = _without_single_axes(batch_first.movedim(axis, -1))
    if total:
        return rows if rows.dim() == 2 else rows.flatten(1, -2).sum(1)
    between = rows.shape[1:-1]
    # Of several axes between batch and features the first is that of the tokens, unless another is as long.
    tokens = len(between) > 0 and (folded or between[0] not in between[1:])
    weights = padding.weights(between[0]) if padding is not None and tokens else None
    if pool == TOKENS and tokens and not channels_first:
        return _every_token(rows)
    if pool != MEAN and tokens and not channels_first:
        return _pooled(rows, None if weights is None else weights.tokens, pool)
    return _average(rows, weights)


def _without_single_axes(rows: Tensor) -> Tensor:
    """Return rows without axes of length 1 between batch and features, as far as others are left there."""
    for axis in range(rows.dim() - 2, 0, -1):
        if rows.shape[axis] == 1 and rows.dim() > 3:
            rows = rows.squeeze(axis)
    return rows


def plain_neurons(output: Tensor, size: int, kind: OutputAxes) -> Tensor | None:
    """Reduce the output of the usual layer, which has a row per input and no axis of tokens; ``None`` for any other.

    The same as ``to_neurons`` gives, in fewer steps: a network of many small layers spends its time on these.
    """
    shape = output.shape
    if len(shape) < 2 or shape[0] != size or output.is_complex():
        return None
    if len(shape) == 2:
        return output.detach().to(_wide(output), copy=True)
    return space_average(output) if kind.channels_first and len(shape) > 3 else None


def _average(output: Tensor, weights: TokenWeights | None) -> Tensor:
    """Return the mean over all axes between the first and the last, as float32, or float64 if it was that."""
    dtype = _wide(output)
    if output.dim() == 2:
        return output.detach().to(dtype, copy=True)
    if weights is not None:
        if output.dim() > 3:
            output = output.detach().mean(dim=tuple(range(2, output.dim() - 1)), dtype=dtype)
        padding, counts = weights.like(output.device, dtype)
        # Half precision is widened while it is added up: a wide copy of every token would take most of the time.
        return output.detach().masked_fill(padding, 0).sum(1, dtype=dtype).div_(counts)
    if _is_large(output) and output.is_contiguous():
        return middle_means(output.detach().flatten(1, -2))
    return output.detach().mean(dim=tuple(range(1, output.dim() - 1)), dtype=dtype)


def _pooled(output: Tensor, mask: Tensor | None, pool: str) -> Tensor:
    """Return the last unmasked token of each input, or the largest number over these; zeros where there is none."""
    dtype = _wide(output)
    values = output.detach()
    if values.dim() > 3:
        values = values.mean(dim=tuple(range(2, values.dim() - 1)), dtype=dtype)
    there = torch.ones(values.shape[:2], dtype=torch.bool) if mask is None else mask
    there = there.to(values.device)
    if not there.shape[1]:
        return torch.zeros(values.shape[0], values.shape[2], dtype=dtype, device=values.device)
    if pool == MAX:
        found = values.masked_fill(~there[:, :, None], -torch.inf).amax(1)
    else:
        last = (there * torch.arange(there.shape[1], device=there.device)).amax(1)
        found = values[torch.arange(len(values), device=last.device), last]
    return found.to(dtype).masked_fill(~there.any(1)[:, None], 0)


def _every_token(output: Tensor) -> Tensor:
    """Return what every token gave, further axes averaged away, as a copy."""
    values, dtype = output.detach(), _wide(output)
    if values.dim() > 3:
        return values.mean(dim=tuple(range(2, values.dim() - 1)), dtype=dtype)
    return values.to(dtype, copy=True)


def space_average(output: Tensor) -> Tensor:
    """Average an image-like output over space; a large one laid out channel by channel has its own kernel.

    PyTorch's own reduction of many rows of 4 to 64 numbers, which late feature maps are, reaches a fraction of
    the speed of memory.
    """
    plain = output.detach() if output.requires_grad else output
    if _is_large(output):
        if output.is_contiguous():
            return row_means(plain.flatten(2))
        channels_last = plain.movedim(1, -1)
        if channels_last.is_contiguous():
            return middle_means(channels_last.flatten(1, -2))
    return plain.mean(dim=tuple(range(2, output.dim())), dtype=_wide(output))


def _is_large(output: Tensor) -> bool:
    """Return whether an output is worth starting a kernel of our own, on a device that runs it."""
    return output.numel() >= _LARGE and output.dtype in _FAST_TYPES and triton_available(output.device)


def _wide(output: Tensor) -> torch.dtype:
    return torch.float64 if output.dtype == torch.float64 else torch.float32


def scores_of(output: Any) -> Tensor | None:
    """Return what classes are read off: ``logits``, or the first tensor; a loss before it, a number alone, has none."""
    found: Tensor | None = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        found = first_tensor(output, axes=1)
    found = whole_tensor(first_tensor(output) if found is None else found)
    return found.dequantize() if found is not None and found.is_quantized else found


def has_classes(scores: Tensor | None, size: int) -> bool:
    """Return whether scores have the form that classes can be read off: (B, C), (B, 1) or (B,)."""
    if scores is None or scores.dim() not in (1, 2) or scores.shape[0] != size:
        return False
    return scores.dim() == 1 or scores.shape[1] > 0


def predicted_classes(output: Any, size: int) -> Int[Tensor, "batch"]:
    """Read classes off scores: the argmax of (B, C), the lowest index on ties; > 0 of (B,) or (B, 1)."""
    scores = scores_of(output)
    if scores is not None and has_classes(scores, size):
        if scores.dim() == 2 and scores.shape[1] >= 2:
            return scores.detach().argmax(1)
        return (scores.detach().reshape(size) > 0).long()
    found = "no tensor" if scores is None else f"an output of shape {tuple(scores.shape)}"
    raise InputError(
        f"{found} for a batch of {size} has no predicted class: expected (batch, classes); "
        "pass predict=, a function from the model's output to one class per input"
    )


def checked_classes(classes: Any, size: int) -> Int[Tensor, "batch"]:
    """Return what a user's ``predict`` returned, as one integer per input."""
    tensor = torch.as_tensor(classes)
    if tensor.shape != (size,) or tensor.is_floating_point() or tensor.is_complex():
        raise InputError(
            f"predict= returned type {tensor.dtype} and shape {tuple(tensor.shape)}: expected {size} integers"
        )
    return tensor.detach().long()


class Decisions:
    """The classes that a model chose: what a user's ``predict`` says of its output, or read off its scores."""

    def __init__(self, predict: Callable[[Any], Any] | None) -> None:
        self._predict, self._range = predict, OutputRange()

    @property
    def told(self) -> bool:
        """Return whether a user's function tells them."""
        return self._predict is not None

    def readable(self, output: Any, size: int) -> bool:
        """Return whether an output has classes to read."""
        return self.told or has_classes(scores_of(output), size)

    def read(self, output: Any, size: int) -> Int[Tensor, "batch"]:
        """Return the class of each input, or the error that the output has none."""
        if self._predict is not None:
            return checked_classes(self._predict(output), size)
        classes = predicted_classes(output, size)
        self._range.observe(scores_of(output))
        return classes

    def findings(self) -> list[Finding]:
        """Return a sentence if classes were read off what look like probabilities."""
        return self._range.findings()


class OutputRange:
    """The least and the greatest output of a model with one output per input: probabilities are no logits.

    Kept on the device, which is asked when somebody reads the findings.
    """

    def __init__(self) -> None:
        self._least: Tensor | None = None
        self._greatest: Tensor | None = None

    def observe(self, scores: Tensor | None) -> None:
        """Take in the outputs of one batch, if they are of this kind."""
        if scores is None or scores.numel() != scores.shape[0] or not scores.numel() or not scores.is_floating_point():
            return
        least, greatest = scores.detach().aminmax()
        if self._least is None or self._greatest is None:
            # No tensors of inference mode, which could not be written to outside of it.
            with torch.inference_mode(False):
                self._least, self._greatest = (torch.full_like(least, bound) for bound in (torch.inf, -torch.inf))
        torch.minimum(self._least, least.to(self._least), out=self._least)
        torch.maximum(self._greatest, greatest.to(self._greatest), out=self._greatest)

    def findings(self) -> list[Finding]:
        """Return a sentence if all outputs look like probabilities."""
        if self._least is None or self._greatest is None or not 0 <= float(self._least) <= float(self._greatest) <= 1:
            return []
        return [
            Finding(
                "predicted class",
                f"all outputs seen lie between {float(self._least):.3g} and {float(self._greatest):.3g} and look like "
                "probabilities, of which every one above 0 was read as class 1: pass predict=, for example "
                "predict=lambda output: (output.reshape(-1) > 0.5).long()",
            )
        ]
