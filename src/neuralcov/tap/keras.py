"""Keras 3 models, on any backend, as modules whose layers the tap can read.

Keras calls ``layer.call`` for every layer of a model, whatever the backend and however the model was built. For the
length of one pass the chosen layers have a ``call`` that notes what the true one returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.arguments import require
from neuralcov.core.errors import InputError, LayerError
from neuralcov.tap.readout import ReadOut, kind_of_layer, place

_WHAT = "Keras models"
# Layers with weights that count; those that end on their bases' names (DepthwiseConv2D, Conv2DTranspose) as well.
_DENSE = ("Dense", "EinsumDense")


class KerasModel(nn.Module):
    """Run a Keras model; its dense and convolutional layers are its layers, as they return their outputs.

    Args:
        model: a built model; it is not changed. Of another backend than torch, its weights are those of this moment.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        keras = require("keras", _WHAT, extra="keras")
        if not isinstance(model, keras.Model):
            raise InputError(f"a model of type {type(model).__name__}: expected a keras.Model")
        if not model.built:
            raise InputError(f"Keras model {model.name!r} is not built: call it once on a batch, or model.build(shape)")
        # In a tuple: with torch as its backend the model is a module, whose own layers are not to be found here.
        self._held = (model,)
        self._readings: list[tuple[Any, ReadOut]] = []
        for name, layer in _named(model):
            module = _reading(layer)
            if module is None:
                continue
            place(self, name, module)
            self._readings.append((layer, module))
            for number, weight in enumerate(layer.weights):
                module.register_parameter(f"weight_{number}", _parameter(weight))
        if not self._readings:
            raise LayerError(f"Keras model {model.name!r} has no dense or convolutional layer to measure")
        shape = getattr(model, "input_shape", None)
        if isinstance(shape, tuple) and shape and all(isinstance(length, int) for length in shape[1:]):
            self.input_shape = shape[1:]

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Return the model's output in inference mode; hand each layer's output to those who listen."""
        keras = require("keras", _WHAT, extra="keras")
        (model,) = self._held
        to_backend = keras.ops.convert_to_tensor
        given = [to_backend(_plain(part, keras)) for part in inputs]
        device = next((part.device for part in [*inputs, *named.values()]), torch.device("cpu"))
        with ExitStack() as stack:
            for layer, module in self._readings:
                if module.wanted:
                    stack.enter_context(_noted(layer, partial(_hand_on, module, keras, device)))
            if named:
                output = model({name: to_backend(_plain(part, keras)) for name, part in named.items()}, training=False)
            else:
                output = model(given[0] if len(given) == 1 else given, training=False)
        if isinstance(output, dict):
            return {name: _tensor(part, keras, device) for name, part in output.items()}
        if isinstance(output, (list, tuple)):
            return tuple(_tensor(part, keras, device) for part in output)
        return _tensor(output, keras, device)


def _hand_on(module: ReadOut, keras: Any, device: torch.device, output: Any) -> None:
    module(_tensor(output, keras, device))


@contextmanager
def _noted(layer: Any, note: Callable[[Any], Any]) -> Iterator[None]:
    """Let ``note`` see what a layer returns, within a block."""
    true, own = layer.call, vars(layer).get("call")

    def call(*args: Any, **kwargs: Any) -> Any:
        output = true(*args, **kwargs)
        note(output)
        return output

    # Past the layer's own __setattr__, which would look for variables to track.
    vars(layer)["call"] = call
    try:
        yield
    finally:
        if own is None:
            del vars(layer)["call"]
        else:
            vars(layer)["call"] = own


def _named(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all layers of a model with those within others, by their names joined by dots; each once."""
    seen: set[int] = set()

    def walk(parent: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for layer in parent._flatten_layers(include_self=False, recursive=False):
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            name = prefix + layer.name.replace(".", "_")
            yield name, layer
            yield from walk(layer, f"{name}.")

    yield from walk(model, prefix)


def _reading(layer: Any) -> ReadOut | None:
    """Return the module for a layer that counts, with the width that its attributes tell."""
    kind = type(layer).__name__
    bases = {base.__name__ for base in type(layer).__mro__}
    convolution = any("Conv" in base for base in bases)
    if not layer.weights or not (convolution or bases & set(_DENSE)):
        return None
    last = -1 if kind != "EinsumDense" else None
    width = getattr(layer, "filters", None) or getattr(layer, "units", None)
    if not isinstance(width, int):
        multiplier = getattr(layer, "depth_multiplier", None)
        if convolution and isinstance(multiplier, int):
            width = int(layer.kernel.shape[-2]) * multiplier
        elif last is None:
            width = int(layer.full_output_shape[-1])
        else:
            return None
    first = convolution and getattr(layer, "data_format", "channels_last") == "channels_first"
    return kind_of_layer(kind)(width, channels_first=first)


def _parameter(weight: Any) -> nn.Parameter:
    value = getattr(weight, "value", weight)
    if isinstance(value, nn.Parameter):
        return value
    return nn.Parameter(torch.from_numpy(np.array(weight.numpy() if hasattr(weight, "numpy") else value)), False)


def _plain(value: Any, keras: Any) -> Any:
    """Return an input as the backend takes it: torch's own tensors, or NumPy arrays."""
    return (
        value if keras.backend.backend() == "torch" or not isinstance(value, Tensor) else value.detach().cpu().numpy()
    )


def _tensor(value: Any, keras: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value
    return torch.from_numpy(np.array(keras.ops.convert_to_numpy(value))).to(device)
