"""Build models named on the command line, and load their weights."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from neuralcov.core.arguments import require, usable_device
from neuralcov.core.errors import InputError, NeuralcovError
from neuralcov.sources.names import imported, offered, split_call
from neuralcov.tap.foreign import as_module, is_onnx, refuse_exported_file
from neuralcov.tap.inputs import call
from neuralcov.tap.onnx import OnnxModel

_FORMS = "package.module:factory, zoo:NAME, torchvision:NAME, timm:NAME, hf:PATH or a file that ends in .onnx"
# Sources whose models have fresh weights, and the networks of the zoo that come with published ones.
_FRESH = ("zoo", "demo", "torchvision", "timm")
_PUBLISHED = ("inception", "adain")


def load_model(text: str, weights: Path | None = None, device: str = "cpu", *, empty: bool = False) -> nn.Module:
    """Build the model that ``text`` names, in eval mode, with weights loaded if given.

    Args:
        text: names the model.
        weights: a file of weights.
        device: where the model goes.
        empty: whether it may be built on the device ``meta``, without weights: it stays there.
    """
    if is_onnx(text):
        if weights is not None:
            raise InputError(f"{text}: an ONNX file holds its weights: leave --weights out")
        return OnnxModel(text).to(usable_device(device)).eval()
    source, colon, rest = text.partition(":")
    if not colon:
        refuse_exported_file(text)
        raise InputError(f"model {text!r}: expected {_FORMS}")
    name, arguments = split_call(rest)
    try:
        model = _build(source, name, arguments)
    except NeuralcovError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"model {text!r} cannot be built: {type(error).__name__}: {first}") from error
    model = model if isinstance(model, str) else as_module(model)
    if not isinstance(model, nn.Module):
        raise InputError(f"model {text!r} gave a {type(model).__name__}: expected a torch.nn.Module")
    if weights is not None:
        load_weights(model, weights)
    without = next((name for name, parameter in model.named_parameters() if parameter.is_meta), None)
    if without is not None and not empty:
        raise InputError(
            f"model {text!r} has no weights ({without!r} is on the device meta): build it with its weights"
        )
    return (model if without is not None else model.to(usable_device(device))).eval()


def weights_of(text: str, model: nn.Module, weights: Path | None) -> tuple[str, str | None]:
    """Tell where a model's weights come from: ``given``, ``random`` or ``as built``, and what a person should know.

    >>> weights_of("torchvision:resnet18", nn.Linear(2, 2), None)
    ('random', 'torchvision:resnet18: no --weights, so these are random weights')
    """
    source, _, rest = text.partition(":")
    name, arguments = split_call(rest)
    if weights is not None or is_onnx(text):
        return "given", None
    if source == "hf" or next(model.parameters(), None) is None:
        return "as built", None
    fresh = source in _FRESH and not (source == "zoo" and name in _PUBLISHED) and "checkpoint_path" not in arguments
    if fresh:
        return "random", f"{text}: no --weights, so these are random weights"
    if source in _FRESH:
        return "as built", None
    return "as built", (
        f"{text} gave a model as it was built; pass --weights FILE if these are not its trained weights"
    )


def raised_by_model(error: BaseException) -> bool:
    """Return whether an error came out of the user's model while it ran."""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return call.__code__ in frames and not isinstance(error, torch.OutOfMemoryError)


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors file, or a PyTorch file as plain tensors only."""
    state = read_weights(path)
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        first = next((line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise InputError(f"{path}: these weights do not fit {type(model).__name__}: {first}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a weights file, half precision widened to float32."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such weights file")
    state: Any
    try:
        if path.suffix == ".safetensors":
            # Not mapped: a file that is overwritten meanwhile would change tensors, or end the process.
            state = load(path.read_bytes())
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file, or cut short ({error})") from error
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # Bytes that are no PyTorch file fail in whatever way their first letters lead to.
        raise InputError(
            f"{path}: holds more than plain tensors, or is no PyTorch file; save model.state_dict() and pass that"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    plain = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not plain or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: expected a mapping of parameter names to tensors")
    return {name: value.float() if value.is_floating_point() else value for name, value in state.items()}


def _build(source: str, name: str, arguments: dict[str, Any]) -> Any:
    found = offered(source)
    if found is not None:
        return found.model(name, **arguments)
    if source == "torchvision":
        return require("torchvision.models", "models of torchvision").get_model(name, weights=None, **arguments)
    if source == "timm":
        return require("timm", "models of timm").create_model(name, pretrained=False, **arguments)
    if source == "hf":
        automatic = require("transformers", "models of Hugging Face").AutoModelForSequenceClassification
        return automatic.from_pretrained(name, **arguments)
    factory = imported(source, name, "model")
    return factory(**arguments) if callable(factory) and not isinstance(factory, nn.Module) else factory
