"""ResNet50 (He et al., 2016), with torchvision's parameter names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuralcov_lab.networks.common import initialise, is_small

_EXPANSION = 4
# Width, number of blocks and first stride of the four stages.
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


def resnet50(num_classes: int = 10, input_size: int = 32) -> ResNet50:
    """ResNet50 with fresh weights: 54 layers, 26,570 neurons for ten classes.

    >>> sum(parameter.numel() for parameter in resnet50().parameters())
    23520842
    """
    return ResNet50(num_classes, input_size)


class ResNet50(nn.Module):
    """Four stages of bottleneck blocks.

    Args:
        num_classes: of the output.
        input_size: below 64 the first convolution is 3×3 with stride 1 (the max-pool stays); from 64 on it
            is ImageNet's 7×7 with stride 2.
    """

    def __init__(self, num_classes: int = 10, input_size: int = 32) -> None:
        super().__init__()
        self.input_shape = (3, input_size, input_size)
        if is_small("resnet50", num_classes, input_size):
            self.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for number, (width, blocks, stride) in enumerate(_STAGES, 1):
            first = Bottleneck(channels, width, stride)
            channels = width * _EXPANSION
            rest = (Bottleneck(channels, width) for _ in range(blocks - 1))
            self.add_module(f"layer{number}", nn.Sequential(first, *rest))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ``(batch, 3, size, size)`` images."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for number in range(1, len(_STAGES) + 1):
            features = self.get_submodule(f"layer{number}")(features)
        return self.fc(torch.flatten(self.avgpool(features), 1))  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions around a shortcut; the 3×3 one carries the stride."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        wide = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != wide:
            shortcut = nn.Conv2d(channels, wide, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(wide))

    def forward(self, features: Tensor) -> Tensor:
        """Features of the same kind, with four times the block's width."""
        shortcut = features if self.downsample is None else self.downsample(features)
        features = self.relu(self.bn1(self.conv1(features)))
        features = self.relu(self.bn2(self.conv2(features)))
        return self.relu(self.bn3(self.conv3(features)) + shortcut)  # type: ignore[no-any-return]
