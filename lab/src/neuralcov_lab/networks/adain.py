"""Style transfer by adaptive instance normalisation (Huang and Belongie, 2017): VGG19 up to relu4_1, and a decoder."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

# Widths of the encoder's convolutions up to relu4_1; each inner tuple but the last ends in a max-pool.
_ENCODER = ((64, 64), (128, 128), (256, 256, 256, 256), (512,))
# Widths of the decoder's; each inner tuple but the last ends in an enlargement.
_DECODER = ((256,), (256, 256, 256, 128), (128, 64), (64, 3))


def adain(folder: Path | None = None) -> AdaIN:
    """Encoder and decoder with their published weights, in eval mode.

    Args:
        folder: where ``vgg_normalized.pth`` and ``decoder.pth`` lie; by default the cache, which
            ``neuralcov data get adain`` fills.
    """
    place = require("adain", folder)
    network = AdaIN()
    _load(network.encoder, place / "vgg_normalized.pth")
    _load(network.decoder, place / "decoder.pth")
    return network.eval().requires_grad_(False)


class AdaIN(nn.Module):
    """Draws the content of one image in the style of another; images in [0, 1], sides of at least 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.input_shape = (3, 256, 256)
        self.encoder = nn.Sequential(*_encoder())
        self.decoder = nn.Sequential(*_decoder())

    def forward(self, content: Tensor, style: Tensor | None = None, strength: float = 1.0) -> Tensor:
        """``content`` restyled, in [0, 1].

        Args:
            content: ``(batch, 3, height, width)`` images.
            style: as many images of any size, or one for all; the content itself where left out.
            strength: from 0, the content as the decoder draws it, to 1, the style in full.
        """
        if not 0 <= strength <= 1:
            raise InputError(f"strength={strength}: expected a number from 0 to 1")
        features = self.encoder(content)
        if style is not None:
            restyled = match_moments(features, self.encoder(style))
            features = strength * restyled + (1 - strength) * features
        height, width = content.shape[2:]
        # Sides that are no multiples of 8 grow on the way.
        return cast(Tensor, self.decoder(features)[:, :, :height, :width].clamp(0, 1))


def match_moments(features: Tensor, like: Tensor, epsilon: float = 1e-5) -> Tensor:
    """``features`` with each channel's mean and deviation replaced by those of ``like``."""
    variance, mean = torch.var_mean(features, (2, 3), keepdim=True)
    wanted_variance, wanted_mean = torch.var_mean(like, (2, 3), keepdim=True)
    return (features - mean) * ((wanted_variance + epsilon) / (variance + epsilon)).sqrt() + wanted_mean


def _encoder() -> Iterator[nn.Module]:
    yield nn.Conv2d(3, 3, 1)
    channels = 3
    for number, stage in enumerate(_ENCODER, 1):
        for width in stage:
            yield from (nn.ReflectionPad2d(1), nn.Conv2d(channels, width, 3), nn.ReLU(inplace=True))
            channels = width
        if number < len(_ENCODER):
            yield nn.MaxPool2d(2, ceil_mode=True)


def _decoder() -> Iterator[nn.Module]:
    channels = _ENCODER[-1][-1]
    for number, stage in enumerate(_DECODER, 1):
        for width in stage:
            yield from (nn.ReflectionPad2d(1), nn.Conv2d(channels, width, 3))
            channels = width
            if channels != _DECODER[-1][-1]:
                yield nn.ReLU(inplace=True)
        if number < len(_DECODER):
            yield nn.Upsample(scale_factor=2)


def _load(network: nn.Sequential, path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; run: neuralcov data get adain")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        # The file holds all of VGG19; what lies behind relu4_1 is not used.
        network.load_state_dict(
            {name: value for name, value in state.items() if int(name.split(".")[0]) < len(network)}
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not the published AdaIN weights, or cut short ({reason})") from error
