"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32×32 pixels in ten classes, in the published binary layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.files import atomic_write
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import sha256_of
from neuralcov_lab.fetching.cache import require

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BINARY = "cifar-10-batches-bin"


def cifar10(split: str = "test", folder: Path | None = None) -> Samples:
    """50,000 images to train with and 10,000 to test with.

    Args:
        split: ``train`` or ``test``.
        folder: ``cifar-10-batches-bin`` or a folder that holds it; by default the cache, which
            ``neuralcov data get cifar10`` fills.
    """
    if split not in BATCHES:
        raise InputError(f"cifar10 has no split {split!r}: expected 'train' or 'test'")
    place = _layout(require("cifar10", folder))
    parts = [_read_binary(place, name) for name in BATCHES[split]]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Samples(f"cifar10 {split}", images, labels, CLASSES, mean=MEAN, std=STD)


def arrange(place: Path) -> dict[str, dict[str, int | str]]:
    """Turn the fetched sheets, one image a row of pixels, into ``cifar-10-batches-bin``; the sheets go."""
    target = place / _BINARY
    target.mkdir(exist_ok=True)
    labels = {split: np.array(_read_labels(place / f"{split}_labels.json")) for split in BATCHES}
    files: dict[str, dict[str, int | str]] = {}
    for split, names in BATCHES.items():
        share = np.array_split(labels[split], len(names))
        for name, classes in zip(names, share, strict=True):
            path = target / f"{name}.bin"
            _write_binary(path, _read_sheet(place / f"{name}.png"), classes)
            files[f"{_BINARY}/{path.name}"] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    for left in (*place.glob("*.png"), *place.glob("*_labels.json")):
        left.unlink()
    return files


def _layout(place: Path) -> Path:
    for folder in (place, place / _BINARY):
        if (folder / "test_batch.bin").is_file():
            return folder
    raise DataError(f"{place}: no {_BINARY} is here; expected test_batch.bin (pickled batches are not read)")


def _read_binary(place: Path, name: str) -> tuple[Tensor, Tensor]:
    """Read rows of one label byte and 3,072 pixel bytes, one colour after the other."""
    path = place / f"{name}.bin"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = np.fromfile(path, dtype=np.uint8)
    if content.size == 0 or content.size % (_PIXELS + 1):
        raise DataError(f"{path}: {content.size:,} bytes are no whole number of images; the file is cut short")
    rows = content.reshape(-1, _PIXELS + 1)
    return torch.from_numpy(rows[:, 1:]).reshape(-1, *_SHAPE), _classes(path, rows[:, 0])


def _classes(path: Path, labels: np.ndarray) -> Tensor:
    highest = int(labels.max())
    if highest >= len(CLASSES):
        raise DataError(f"{path}: has class {highest}, expected 0 to {len(CLASSES) - 1}")
    return torch.from_numpy(labels.astype(np.int64))


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
