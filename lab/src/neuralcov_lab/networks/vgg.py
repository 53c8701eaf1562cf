"""VGG16 with batch normalisation (Simonyan and Zisserman, 2015), with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from neuralcov_lab.networks.common import initialise, is_small

# Widths of the convolutions; each inner tuple ends in a max-pool.
_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_HIDDEN = 4096


def vgg16_bn(num_classes: int = 10, input_size: int = 32) -> VGG16BN:
    """VGG16 with batch normalisation and fresh weights: 16 layers, 12,426 neurons for ten classes.

    >>> sum(parameter.numel() for parameter in vgg16_bn().parameters())
    33646666
    """
    return VGG16BN(num_classes, input_size)


class VGG16BN(nn.Module):
    """Thirteen convolutions and three linear layers.

    Args:
        num_classes: of the output.
        input_size: below 64 features are averaged to 1×1 before the first linear layer; from 64 on to 7×7.
    """

    def __init__(self, num_classes: int = 10, input_size: int = 32) -> None:
        super().__init__()
        self.input_shape = (3, input_size, input_size)
        side = 1 if is_small("vgg16_bn", num_classes, input_size) else 7
        self.features = nn.Sequential(*_features())
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(
            nn.Linear(_STAGES[-1][-1] * side * side, _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(_HIDDEN, num_classes),
        )
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ``(batch, 3, size, size)`` images."""
        features = self.avgpool(self.features(images))
        return self.classifier(torch.flatten(features, 1))  # type: ignore[no-any-return]


def _features() -> Iterator[nn.Module]:
    channels = 3
    for stage in _STAGES:
        for width in stage:
            yield nn.Conv2d(channels, width, 3, padding=1)
            yield nn.BatchNorm2d(width)
            yield nn.ReLU(inplace=True)
            channels = width
        yield nn.MaxPool2d(2)
