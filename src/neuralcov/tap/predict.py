"""The class a model chose, read off its output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.ledger import Finding
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
        """A sentence if all outputs look like probabilities."""
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
