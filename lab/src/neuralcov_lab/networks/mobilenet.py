"""MobileNetV2 (Sandler et al., 2018), with torchvision's parameter names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuralcov_lab.networks.common import initialise, is_small

# Expansion, channels, blocks and first stride of each stage, as in the paper's second table.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_FIRST, _LAST = 32, 1280
_STRIDE_ONE_WHEN_SMALL = 24


def mobilenet_v2(num_classes: int = 10, input_size: int = 32) -> MobileNetV2:
    """MobileNetV2 with fresh weights: 53 layers, 17,066 neurons for ten classes.

    >>> sum(parameter.numel() for parameter in mobilenet_v2().parameters())
    2236682
    """
    return MobileNetV2(num_classes, input_size)


class MobileNetV2(nn.Module):
    """Inverted residual blocks with depthwise convolutions.

    Args:
        num_classes: of the output.
        input_size: below 64 the first convolution and the 24-channel stage have stride 1; from 64 on stride 2.
    """

    def __init__(self, num_classes: int = 10, input_size: int = 32) -> None:
        super().__init__()
        self.input_shape = (3, input_size, input_size)
        small = is_small("mobilenet_v2", num_classes, input_size)
        blocks: list[nn.Module] = [_ConvNormActivation(3, _FIRST, 3, stride=1 if small else 2)]
        channels = _FIRST
        for expansion, width, count, stride in _STAGES:
            first = 1 if small and width == _STRIDE_ONE_WHEN_SMALL else stride
            for number in range(count):
                blocks.append(InvertedResidual(channels, width, expansion, first if number == 0 else 1))
                channels = width
        self.features = nn.Sequential(*blocks, _ConvNormActivation(channels, _LAST, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(_LAST, num_classes))
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ``(batch, 3, size, size)`` images."""
        features = nn.functional.adaptive_avg_pool2d(self.features(images), 1)
        return self.classifier(torch.flatten(features, 1))  # type: ignore[no-any-return]


class InvertedResidual(nn.Module):
    """Widen by a 1×1 convolution, convolve each channel by itself, narrow again."""

    def __init__(self, channels: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        hidden = channels * expansion
        widen = [] if expansion == 1 else [_ConvNormActivation(channels, hidden, 1)]
        self.conv = nn.Sequential(
            *widen,
            _ConvNormActivation(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = stride == 1 and channels == width

    def forward(self, features: Tensor) -> Tensor:
        """Features of ``width`` channels, added to the input where the shapes agree."""
        changed: Tensor = self.conv(features)
        return features + changed if self.shortcut else changed


class _ConvNormActivation(nn.Sequential):
    def __init__(self, channels: int, width: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(
            nn.Conv2d(channels, width, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU6(inplace=True),
        )
