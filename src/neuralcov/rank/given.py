"""Find what classes are decided by: the last layer before the output, or what the output layer is given.

They are the same where a linear layer, rectified or not, stands before the output. A convolution's neurons are means
over all places, and what is added or normalised behind it is not in them: then the output layer's input tells more. It
is there only while the model runs, so that a calibration does not hold it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from neuralcov.core.activations import Activations
from neuralcov.coverage.running import Run
from neuralcov.tap.outputs import scores_of

GIVEN = "what the output layer is given"


class OutputListener:
    """Hold input and output of the linear layer that was called last.

    Args:
        model: that is listened to; ``None`` or one without linear layers gives nothing.
    """

    def __init__(self, model: Any) -> None:
        linear = (nn.Linear, nn.LazyLinear)
        modules = model.modules() if isinstance(model, nn.Module) else ()
        self._layers = [module for module in modules if isinstance(module, linear)]
        self._last: tuple[Tensor, Tensor] | None = None
        self.found: bool | None = None
        """Whether that layer gives the output, from something no layer shows; ``None`` until a batch was seen."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the model until the end, also if that is an error."""
        handles = [layer.register_forward_hook(self._take) for layer in self._layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._last = None

    def _take(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            self._last = (inputs[0].detach(), output.detach())

    def joined(self, run: Run) -> Activations:
        """Return the activations of a batch, with what the output layer was given as one layer more, where found."""
        batch, last = cast(Activations, run.activations), self._last
        self._last = None
        if self.found is None:
            self.found = (
                last is not None
                and _gives_output(*last, run.output, batch.size)
                and not _is_shown(last[0], batch.layers[last_before_output(batch, run.output)])
            )
        if not self.found or last is None or last[0].shape[0] != batch.size:
            return batch
        given = last[0] if last[0].dtype in (torch.float32, torch.float64) else last[0].float()
        return replace(batch, layers={**batch.layers, GIVEN: given.to(batch.device)})


def _gives_output(given: Tensor, output: Tensor, of_model: Any, size: int) -> bool:
    """Tell whether a layer that is given a row for each input gives the model's output, as it is or by a softmax."""
    scores = scores_of(of_model)
    if scores is None or given.dim() != 2 or len(given) != size or output.shape != scores.shape:
        return False
    there, own = scores.detach().double().cpu(), output.double().cpu()
    return any(torch.allclose(there, each, rtol=1e-3, atol=1e-5, equal_nan=True) for each in (own, own.softmax(1)))


def _is_shown(given: Tensor, neurons: Tensor) -> bool:
    """Tell whether what the output layer is given are a layer's neurons, as they are or rectified."""
    if given.shape != neurons.shape:
        return False
    here = neurons.to(given.device, given.dtype)
    return any(torch.allclose(given, each, rtol=1e-3, atol=1e-5, equal_nan=True) for each in (here, here.relu()))


def last_before_output(batch: Activations, output: Any) -> str:
    """Name the last layer before the output: the last one that does not give the model's output itself."""
    if GIVEN in batch.layers:
        return GIVEN
    scores = scores_of(output)
    for name in reversed(list(batch.layers)):
        if scores is None or not _is_output(batch.layers[name], scores):
            return name
    return next(reversed(list(batch.layers)))


def _is_output(neurons: Tensor, scores: Tensor) -> bool:
    """Tell whether a layer gives the output, as it is or averaged as neurons are."""
    there = scores.detach().to(neurons.device, neurons.dtype)
    if there.dim() == 1:
        there = there[:, None]
    if there.shape[0] != neurons.shape[0] or there.shape[1:].numel() != neurons.shape[1:].numel():
        return False
    return bool(torch.allclose(there.reshape(neurons.shape), neurons, rtol=1e-3, atol=1e-5, equal_nan=True))
