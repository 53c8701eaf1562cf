"""Read image folders: one subfolder per class, as most people keep them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm"}
_HIGHEST = 65_535


def image_folder(folder: Path) -> Samples:
    """Read all images below ``folder``, whose subfolders are the classes in alphabetical order.

    Images must be of one size; grey ones are read as RGB, and those of 16 bits scaled to 8.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    images: list[torch.Tensor] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in IMAGE_SUFFIXES:
                images.append(_read(path, images[0].shape if images else None))
                labels.append(label)
    if not images:
        raise InputError(f"{folder}: no images in class folders; expected {folder}/CLASS/IMAGE.png")
    return Samples(str(folder), torch.stack(images), torch.tensor(labels), tuple(classes))


def _read(path: Path, expected: torch.Size | None) -> torch.Tensor:
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = torch.from_numpy(_bytes(path, image)).permute(2, 0, 1)
    except InputError:
        raise
    except Exception as error:  # Decoders end in any error there is when a file is damaged.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{path}: not an image that can be read ({reason})") from error
    if expected is not None and pixels.shape != expected:
        size, wanted = (f"{shape[2]}×{shape[1]}" for shape in (pixels.shape, expected))
        raise InputError(f"{path}: {size} pixels, expected {wanted} like the images before it")
    return pixels


def _bytes(path: Path, image: Image.Image) -> np.ndarray:
    """Return ``(height, width, 3)`` bytes; grey images of 16 bits are scaled, where PIL would cut them off at 255."""
    if image.mode == "F":
        raise InputError(f"{path}: pixels of mode F, expected 8 or 16 bits; save it with 8")
    if not image.mode.startswith("I"):
        return np.array(image.convert("RGB"))
    grey = np.array(image).astype(np.int64)
    if grey.min() < 0 or grey.max() > _HIGHEST:
        raise InputError(
            f"{path}: pixels from {grey.min()} to {grey.max()}, expected 0 to {_HIGHEST}; save it with 8 bits"
        )
    # 65,535 is 257 times 255.
    narrow = ((grey + 128) // 257).astype(np.uint8)
    return np.repeat(narrow[:, :, None], 3, axis=2)
