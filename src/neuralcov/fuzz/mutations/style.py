"""Stylise by adaptive instance normalisation: redraw a picture with the feature statistics of a style image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from neuralcov.core.errors import InputError
from neuralcov.fuzz.mutations.mutation import ListedMutation, MutationDraw

STRENGTHS = (0.4, 0.6, 0.8)
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm"}
_STYLE_SIDE = 256
_EPSILON = 1e-5

Network = Callable[[Tensor], Tensor]


class Stylise(ListedMutation):
    """Stylise by AdaIN (Huang and Belongie, 2017) with an encoder and a decoder such as ``zoo.adain()`` holds.

    The encoder reduces eight-fold, so that pictures of 32 × 32 would leave it 4 × 4 positions and the decoder would
    lose what they show (a mean change of 0.20 at strength 0, against 0.07 from 128 × 128). So pictures whose shorter
    side is below ``side`` are enlarged to it bilinearly before, and reduced by averaging afterwards. Grey pictures
    are stylised as coloured ones and averaged over the channels.

    Hardly any stylised picture passes the usual limits of validity: its every pixel changes, and some of them by
    more than 0.4. With ``geometric=True`` it counts as the one change of a lineage that moves the root input too.

    Args:
        encoder: pictures ``(batch, 3, height, width)`` in [0, 1] to feature maps.
        decoder: feature maps to pictures.
        styles: name → ``(3, height, width)`` in [0, 1], for example from ``style_folder``.
        strengths: from 0, the picture as the decoder draws it, to 1, the style in full.
        side: the shorter side pictures are enlarged to.
        geometric: see above.
    """

    redraws = True

    def __init__(
        self,
        encoder: Network,
        decoder: Network,
        styles: dict[str, Tensor],
        *,
        strengths: Sequence[float] = STRENGTHS,
        side: int = 128,
        geometric: bool = False,
    ) -> None:
        for strength in strengths:
            if not 0 <= strength <= 1:
                raise InputError(f"stylising with strength {strength}: expected a number from 0 to 1")
        if side < 16:
            raise InputError(f"stylising at side={side}: expected at least 16 pixels")
        pairs = [(name, strength) for name in styles for strength in strengths]
        super().__init__("style", pairs, geometric=geometric)
        self.encoder, self.decoder, self.side = encoder, decoder, side
        self.styles, self.strengths = dict(styles), tuple(strengths)
        self._moments: tuple[Tensor, Tensor] | None = None

    @override
    def apply(self, batch: Tensor, draw: MutationDraw) -> Tensor:
        style, part = np.divmod(draw.setting, len(self.strengths))
        which = torch.from_numpy(style).to(batch.device, non_blocking=True)
        strengths = np.array(self.strengths, dtype=np.float32)[part]
        strength = torch.from_numpy(strengths).to(batch.device, non_blocking=True)[:, None, None, None]
        wanted_mean, wanted_deviation = (moment[which] for moment in self._style_moments(batch.device))
        height, width = batch.shape[2:]
        with torch.no_grad():
            features = self.encoder(self._enlarged(batch))
            mean, deviation = _moments(features)
            restyled = (features - mean) / deviation * wanted_deviation + wanted_mean
            drawn = self.decoder(strength * restyled + (1 - strength) * features)
        drawn = functional.interpolate(drawn, (height, width), mode="area").clamp(0, 1)
        return drawn.mean(1, keepdim=True) if batch.shape[1] == 1 else drawn

    @override
    def identity(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for image in self.styles.values():
            digest.update(image.detach().cpu().contiguous().numpy().tobytes())
        return {**super().identity(), "side": self.side, "styles": digest.hexdigest()}

    def _enlarged(self, batch: Tensor) -> Tensor:
        if batch.shape[1] not in (1, 3):
            raise InputError(f"stylising pictures of {batch.shape[1]} channels: expected 1 or 3")
        images = batch.expand(-1, 3, -1, -1)
        height, width = images.shape[2:]
        factor = self.side / min(height, width)
        # A multiple of 8, so that the decoder gives back the size it was given.
        size = [-(-max(round(length * factor), length) // 8) * 8 for length in (height, width)]
        if size == [height, width]:
            return images
        return functional.interpolate(images, size, mode="bilinear", align_corners=False)

    def _style_moments(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of every style's features, computed once."""
        if self._moments is None or self._moments[0].device != device:
            with torch.no_grad():
                found = [_moments(self.encoder(image[None].to(device))) for image in self.styles.values()]
            mean, deviation = (torch.cat(parts) for parts in zip(*found, strict=True))
            self._moments = mean, deviation
        return self._moments


def style_folder(folder: str | Path | None = None) -> dict[str, Tensor]:
    """Return the images of a folder as styles, in the order of their names; without one, those that are shipped.

    >>> sorted(style_folder())
    ['bricks', 'hatching', 'marble', 'waves']
    """
    if folder is None:
        shipped = files("neuralcov.fuzz").joinpath("styles")
        paths = sorted((path for path in shipped.iterdir() if path.name.endswith(".png")), key=lambda path: path.name)
        return {path.name.removesuffix(".png"): _read(path) for path in paths}
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place}: there is no such folder of style images")
    found = {path.stem: _read(path) for path in sorted(place.iterdir()) if path.suffix.lower() in IMAGE_SUFFIXES}
    if not found:
        raise InputError(f"{place}: no images to take styles from; expected .png or .jpg files")
    return found


def _read(path: Any) -> Tensor:
    """Read one image, its longer side at most 256 pixels."""
    from PIL import Image, UnidentifiedImageError

    try:
        with path.open("rb") as file, Image.open(file) as image:
            colours = image.convert("RGB")
            colours.thumbnail((_STYLE_SIDE, _STYLE_SIDE))
            pixels = np.array(colours)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{path}: not an image that can be read ({error})") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(features, (2, 3), keepdim=True)
    return mean, (variance + _EPSILON).sqrt()
