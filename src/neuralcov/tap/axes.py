"""What kinds of modules count as layers, and how the output of each kind is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from neuralcov.tap.readout import ReadOut

RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
CELLS = (nn.RNNCell, nn.LSTMCell, nn.GRUCell)
_DEFAULT = (nn.Linear, _ConvNd, nn.MultiheadAttention, ReadOut, *RECURRENT, *CELLS)
_LINEAR, _CONVOLUTION = "Linear", "Conv"
# Modules beyond the default kinds whose features lie on axis 1 whatever the rank of their output.
_CHANNELS_FIRST = (
    _ConvNd,
    _NormBase,
    nn.GroupNorm,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)


@dataclass(frozen=True)
class OutputAxes:
    """How to read a module's output.

    Args:
        recurrent: the output is a sequence, each step of which is a layer of its own.
        cell: a recurrent cell, called once per step; fewer calls mean absent steps.
        batch_axis: where the module itself says the batch lies, if it does.
        channels_first: features lie on axis 1; ``None`` leaves it to the rank of the output.
        features: how many features a norm has, which tells their axis in an output of any rank.
        prefers_last: where both axis 1 and the last are that long, it is the last.
        tokens_in_order: rows are the tokens of all inputs, one input after the other.
    """

    recurrent: bool = False
    cell: bool = False
    batch_axis: int | None = None
    channels_first: bool | None = None
    features: int | None = None
    prefers_last: bool = True
    tokens_in_order: bool = False


def is_layer_by_default(module: nn.Module) -> bool:
    """Return whether a module counts when the user chooses nothing."""
    known = issubclass(class_of(module), _DEFAULT) and not is_unreadable(module)
    return known or _is_transformers_conv1d(module) or _quantised(module) is not None or holds_experts(module)


def holds_experts(module: nn.Module) -> bool:
    """Return whether a module of transformers keeps the experts of a mixture as parameters, and gives one output."""
    named = type(module).__name__.endswith("Experts") and type(module).__module__.startswith("transformers.")
    return named and any(weight is not None and weight.dim() == 3 for weight in module._parameters.values())


def is_unreadable(module: nn.Module) -> bool:
    """Return whether a module is a layer that was traced and thereby forgot how its output is laid out."""
    return issubclass(class_of(module), (nn.MultiheadAttention, *RECURRENT)) and not hasattr(module, "batch_first")


def class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module; of what was scripted, traced or exported the one of ``torch.nn`` it was made of."""
    name = _exported_name(module)
    if isinstance(module, torch.jit.ScriptModule) or name.startswith("torch.nn.modules."):
        original = getattr(nn, name.rpartition(".")[2] or str(module.original_name), None)
        if isinstance(original, type) and issubclass(original, nn.Module):
            return original
    return type(module)


def _exported_name(module: nn.Module) -> str:
    """Return the name of the class that a part of an exported program was made of; nothing for other modules."""
    exported = type(module).__module__.startswith("torch.export.")
    return str(getattr(module, "_ty", None) or "") if exported else ""


def axes_of(module: nn.Module) -> OutputAxes:
    """Return how to read the output of ``module``."""
    cls = class_of(module)
    if issubclass(cls, RECURRENT):
        return OutputAxes(recurrent=True, batch_axis=0 if module.batch_first else 1)
    if issubclass(cls, CELLS):
        return OutputAxes(cell=True, channels_first=False)
    if issubclass(cls, nn.MultiheadAttention):
        return OutputAxes(batch_axis=0 if module.batch_first else 1, channels_first=False)
    if isinstance(module, ReadOut):
        return OutputAxes(channels_first=module.channels_first)
    if _quantised(module) is not None:
        return OutputAxes(channels_first=_quantised(module) == _CONVOLUTION)
    if issubclass(cls, _CHANNELS_FIRST):
        return OutputAxes(channels_first=True)
    if is_layer_by_default(module):
        return OutputAxes(channels_first=False, tokens_in_order=holds_experts(module))
    return OutputAxes(features=_normalised(module), prefers_last=not _says_channels_first(module))


def has_batch_second(model: nn.Module) -> bool:
    """Return whether a model has modules that take the batch on axis 1, as attention and recurrent layers may."""
    return any(getattr(module, "batch_first", None) is False for module in model.modules())


def feature_axis(shape: Sequence[int], kind: OutputAxes) -> int:
    """Return the axis of an output on which its features lie."""
    return len(shape) - 1 if features_last(shape, kind) else 1


def features_last(shape: Sequence[int], kind: OutputAxes) -> bool:
    """Return whether an output has its features on the last axis rather than on axis 1."""
    if kind.channels_first is not None:
        return not kind.channels_first
    # A module of another kind, chosen by name: an image-like output has its features on axis 1, unless the module
    # knows how many there are and the last axis is as long.
    if len(shape) < 4:
        return True
    if kind.features is None or shape[-1] != kind.features:
        return False
    return shape[1] != kind.features or kind.prefers_last


def multiplies_by_weights(module: nn.Module) -> bool:
    """Return whether a batch norm right behind a module can be folded into its weights."""
    return isinstance(module, (nn.Linear, _ConvNd))


def static_width(module: nn.Module) -> int | None:
    """Return the neurons of a module where its own attributes tell, before it was ever run."""
    if isinstance(module, CELLS):
        return int(module.hidden_size)
    if isinstance(module, RECURRENT):
        return int((module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1))
    for attribute in (
        "out_features",
        "out_channels",
        "embed_dim",
        *(["nf"] if _is_transformers_conv1d(module) else []),
    ):
        width = getattr(module, attribute, None)
        if isinstance(width, int):
            return width
    return None


def declared_width(module: nn.Module) -> int | None:
    """Return the neurons that a module of a default kind says it has; ``None`` if it says nothing."""
    if not is_layer_by_default(module):
        return None
    width = getattr(module, "nf", None) if _is_transformers_conv1d(module) else static_width(module)
    return width if isinstance(width, int) else None


def output_axis(module: nn.Module) -> int | None:
    """Return the axis of a module's weight that counts its outputs; ``None`` if it is not known."""
    if isinstance(module, _ConvTransposeNd) or _is_transformers_conv1d(module):
        return 1
    return 0 if isinstance(module, (nn.Linear, _ConvNd)) else None


def _normalised(module: nn.Module) -> int | None:
    """Return how many features a layer norm of any library has, by its attributes; ``None`` for other modules."""
    shape = getattr(module, "normalized_shape", None)
    if isinstance(shape, (tuple, list)):
        return shape[0] if len(shape) == 1 else None
    weight = getattr(module, "weight", None)
    is_norm = "norm" in type(module).__name__.lower() and isinstance(weight, Tensor) and weight.dim() == 1
    return weight.shape[0] if is_norm and isinstance(weight, Tensor) else None


def _says_channels_first(module: nn.Module) -> bool:
    """Return whether a norm says by attribute or name (``LayerNorm2d``) that it takes images channel by channel."""
    return getattr(module, "data_format", None) == "channels_first" or type(module).__name__.lower().endswith("2d")


def _quantised(module: nn.Module) -> str | None:
    """Return of which kind a layer is whose weights were quantised statically; ``None`` for any other module."""
    # Named, not imported: fused ones lie in further packages, and few models have any.
    if not type(module).__module__.startswith("torch.ao.nn."):
        return None
    quantised = any(c.__name__ == "WeightedQuantizedModule" for c in type(module).__mro__)
    name = type(module).__name__
    return next((kind for kind in (_LINEAR, _CONVOLUTION) if quantised and kind in name), None)


def _is_transformers_conv1d(module: nn.Module) -> bool:
    # Named, not imported: transformers is optional and slow to import.
    names = [_exported_name(module), *(f"{c.__module__}.{c.__name__}" for c in type(module).__mro__)]
    return any(name.startswith("transformers.") and name.endswith(".Conv1D") for name in names)
