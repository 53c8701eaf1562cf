"""MobileNetV2 as trained on ImageNet, for images of any size."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require
from neuralcov_lab.networks.mobilenet import MobileNetV2

CLASSES, SIDE = 1000, 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
_FILE = "mobilenet_v2-b0353104.pth"


def mobilenet_v2_imagenet(folder: Path | None = None) -> ImageNetMobileNet:
    """Return the network with its published weights, in eval mode.

    Args:
        folder: where the weights lie; by default the cache, which ``neuralcov data get mobilenet_v2-imagenet`` fills.
    """
    place = require("mobilenet_v2-imagenet", folder)
    network = ImageNetMobileNet()
    try:
        network.load_state_dict(torch.load(place / _FILE, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise DataError(f"{place}: these are not the weights of MobileNetV2: {str(error).splitlines()[0]}") from error
    return network.eval().requires_grad_(False)


class ImageNetMobileNet(MobileNetV2):
    """MobileNetV2 in its form for 224×224 pixels, with a thousand classes; it enlarges what is smaller."""

    def __init__(self) -> None:
        super().__init__(CLASSES, SIDE)

    @override
    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-1] != SIDE or images.shape[-2] != SIDE:
            images = functional.interpolate(images, (SIDE, SIDE), mode="bilinear", align_corners=False)
        return super().forward(images)
