"""The class a model chose, read off its output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Int
from neuralcov.tap.inputs import first_tensor
from neuralcov.tap.shards import whole_tensor


def scores_of(output: Any) -> Tensor | None:
    """What classes are read off: ``.logits`` or the first tensor."""
    logits = getattr(output, "logits", None)
    return whole_tensor(logits if isinstance(logits, Tensor) else first_tensor(output))  # type: ignore[no-any-return]


def predicted_classes(output: Any, size: int) -> Int[Tensor, "batch"]:
    """Of the scores: the argmax of (B, C), the lowest index on ties; > 0 of (B,) or (B, 1)."""
    scores = scores_of(output)
    if scores is not None and scores.dim() >= 1 and scores.shape[0] == size:
        if scores.dim() == 2 and scores.shape[1] >= 2:
            return scores.detach().argmax(1)
        if scores.dim() == 1 or (scores.dim() == 2 and scores.shape[1] == 1):
            return (scores.detach().reshape(size) > 0).long()
    found = "no tensor" if scores is None else f"an output of shape {tuple(scores.shape)}"
    raise InputError(
        f"{found} for a batch of {size} has no predicted class: expected (batch, classes); "
        "pass predict=, a function from the model's output to one class per input"
    )


def checked_classes(classes: Any, size: int) -> Int[Tensor, "batch"]:
    """What a user's ``predict`` returned, as one integer per input."""
    tensor = torch.as_tensor(classes)
    if tensor.shape != (size,) or tensor.is_floating_point() or tensor.is_complex():
        raise InputError(
            f"predict= returned type {tensor.dtype} and shape {tuple(tensor.shape)}: expected {size} integers"
        )
    return tensor.detach().long()
