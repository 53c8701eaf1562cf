"""Two plain networks: convolutions one after another, and linear layers one after another."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov_lab.networks.common import initialise

_SIDE = 28


class ConvNet(nn.Module):
    """Four convolutions with batch normalisation and two linear layers, for grey images of 28×28 pixels.

    Args:
        num_classes: of the output.
        width: channels of the first two convolutions; the other two have twice as many.
        hidden: neurons of the first linear layer.
    """

    def __init__(self, num_classes: int = 10, width: int = 16, hidden: int = 128) -> None:
        super().__init__()
        _require_positive("convnet", num_classes=num_classes, width=width, hidden=hidden)
        self.input_shape = (1, _SIDE, _SIDE)
        self.features = nn.Sequential(
            *_convolution(1, width, stride=2),
            *_convolution(width, width, stride=1),
            *_convolution(width, 2 * width, stride=2),
            *_convolution(2 * width, 2 * width, stride=1),
        )
        self.hidden = nn.Linear(2 * width * (_SIDE // 4) ** 2, hidden)
        self.fc = nn.Linear(hidden, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ``(batch, 1, 28, 28)`` images in [0, 1]."""
        return cast(Tensor, self.fc(torch.relu(self.hidden(self.features(images).flatten(1)))))


def _convolution(channels: int, width: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(width), nn.ReLU()


class MLP(nn.Module):
    """Linear layers with rectifiers between, for rows of numbers and for images taken as rows.

    Args:
        num_classes: of the output.
        features: numbers of an input.
        hidden: neurons of each hidden layer.
        layers: linear layers, the output among them.
    """

    def __init__(self, num_classes: int = 26, features: int = 16, hidden: int = 128, layers: int = 6) -> None:
        super().__init__()
        _require_positive("mlp", num_classes=num_classes, features=features, hidden=hidden, layers=layers)
        widths = [features, *[hidden] * (layers - 1), num_classes]
        self.layers = nn.ModuleList(nn.Linear(given, made) for given, made in pairwise(widths))
        initialise(self)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of inputs of any shape that hold as many numbers each as the first layer takes."""
        values = inputs.flatten(1)
        for number, layer in enumerate(self.layers):
            values = layer(torch.relu(values) if number else values)
        return values


def _require_positive(network: str, **arguments: int) -> None:
    for name, value in arguments.items():
        if value < 1:
            raise InputError(f"{network}({name}={value}): {name} must be at least 1")
