"""Read plain convolutional networks that Keras wrote as HDF5 files, as modules of PyTorch that give logits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from neuralcov_lab.errors import DataError

_ACTIVATIONS = {"relu": nn.ReLU, "linear": nn.Identity, "softmax": nn.Identity}
_SAME = "same"


class KerasGraph(nn.Module):
    """Run layers in the order of a file, each on what others gave. A softmax at the end is left out.

    Args:
        layers: by name, in an order in which every layer follows those that it takes from.
        sources: by name, the layers that it takes from; none for the input.
    """

    def __init__(self, layers: Mapping[str, nn.Module], sources: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._sources = dict(sources)

    @override
    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of ``(batch, channels, height, width)`` images."""
        given: dict[str, Tensor] = {}
        last = images
        for name, layer in self.layers.items():
            inputs = [given[source] for source in self._sources[name]] or [images]
            last = layer(inputs[0]) if len(inputs) == 1 else layer(*inputs)
            given[name] = last
        return last


class _Sum(nn.Module):
    """Add several tensors, as Keras's ``Add``."""

    @override
    def forward(self, *parts: Tensor) -> Tensor:
        """Return the sum."""
        return torch.stack(parts).sum(0)


class _Flatten(nn.Module):
    """Flatten images with the channels last, as Keras does."""

    @override
    def forward(self, images: Tensor) -> Tensor:
        """Return rows."""
        return images.permute(0, 2, 3, 1).flatten(1) if images.dim() == 4 else images.flatten(1)


class _PaddedLikeTensorFlow(nn.Module):
    """Pad as TensorFlow's ``same`` before a convolution: one more below and to the right where the sum is odd."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    @override
    def forward(self, images: Tensor) -> Tensor:
        """Return the convolution's output."""
        sides: list[int] = []
        for size, kernel, stride in zip(
            reversed(images.shape[2:]),
            reversed(self.convolution.kernel_size),
            reversed(self.convolution.stride),
            strict=True,
        ):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [missing // 2, missing - missing // 2]
        return cast(Tensor, self.convolution(nn.functional.pad(images, sides)))


def read_keras(path: Path) -> KerasGraph:
    """Build the network that a file of Keras 2 describes, with its weights.

    Args:
        path: of an ``.h5`` file with a sequential or functional model of convolutions, batch normalisations, poolings
            and dense layers.
    """
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{path}: reading files of Keras needs h5py: `pip install h5py`") from error
    with h5py.File(path, "r") as file:
        model = json.loads(file.attrs["model_config"])
        weights = file.get("model_weights", file)
        layers: dict[str, nn.Module] = {}
        sources: dict[str, list[str]] = {}
        described = model["config"] if isinstance(model["config"], list) else model["config"]["layers"]
        before: list[str] = []
        for layer in described:
            name = layer["config"]["name"]
            from_others = [node[0] for node in layer["inbound_nodes"][0]] if layer.get("inbound_nodes") else before
            if layer["class_name"] == "InputLayer":
                continue
            group = weights[name]
            arrays = [np.array(group[each]) for each in group.attrs.get("weight_names", [])]
            layers[name] = _layer(layer["class_name"], layer["config"], arrays)
            sources[name] = [source for source in from_others if source in layers]
            before = [name]
    return KerasGraph(layers, sources).eval()


def _layer(kind: str, config: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> nn.Module:
    """Return the module that does what a layer of Keras does."""
    if kind == "Conv2D":
        module = _convolution(config, arrays)
    elif kind == "Dense":
        module = _dense(arrays)
    elif kind == "BatchNormalization":
        return _normalisation(config, arrays)
    elif kind == "MaxPooling2D":
        return nn.MaxPool2d(tuple(config["pool_size"]), tuple(config["strides"]))
    elif kind == "GlobalAveragePooling2D":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    elif kind == "Activation":
        return cast(nn.Module, _ACTIVATIONS[config["activation"]]())
    elif kind in ("Dropout", "Flatten", "Add"):
        return {"Dropout": nn.Identity, "Flatten": _Flatten, "Add": _Sum}[kind]()
    else:
        raise DataError(f"the layer {config['name']!r} is a {kind}, which is not among those that can be read here")
    activation = config["activation"]
    return nn.Sequential(module, nn.ReLU()) if activation == "relu" else module


def _convolution(config: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> nn.Module:
    kernel = torch.from_numpy(arrays[0]).permute(3, 2, 0, 1).contiguous()
    after, before, height, width = kernel.shape
    down, across = config["strides"]
    convolution = nn.Conv2d(before, after, (height, width), (down, across), bias=len(arrays) > 1)
    _fill(convolution, kernel, *arrays[1:])
    return _PaddedLikeTensorFlow(convolution) if config["padding"] == _SAME else convolution


def _dense(arrays: Sequence[np.ndarray]) -> nn.Module:
    before, after = arrays[0].shape
    linear = nn.Linear(before, after, bias=len(arrays) > 1)
    _fill(linear, torch.from_numpy(arrays[0]).T.contiguous(), *arrays[1:])
    return linear


def _normalisation(config: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> nn.Module:
    gamma, beta, mean, variance = (torch.from_numpy(array) for array in arrays)
    norm = nn.BatchNorm2d(len(gamma), eps=config["epsilon"])
    norm.load_state_dict({"weight": gamma, "bias": beta, "running_mean": mean, "running_var": variance}, strict=False)
    return norm


def _fill(module: nn.Conv2d | nn.Linear, kernel: Tensor, *bias: np.ndarray) -> None:
    with torch.no_grad():
        module.weight.copy_(kernel)
        if bias:
            assert module.bias is not None
            module.bias.copy_(torch.from_numpy(bias[0]))
