"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32×32 pixels in ten classes, in any of its usual layouts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import sha256_of
from neuralcov_lab.fetching.cache import require
from neuralcov_lab.fetching.pickles import read_arrays

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_BINARY, _PICKLED = "cifar-10-batches-bin", "cifar-10-batches-py"


def cifar10(split: str = "test", folder: Path | None = None) -> Samples:
    """50,000 images to train with and 10,000 to test with.

    Args:
        split: ``train`` or ``test``.
        folder: ``cifar-10-batches-bin``, ``cifar-10-batches-py`` or a folder that holds one of them; by default
            the cache, which ``neuralcov data get cifar10`` fills.
    """
    if split not in BATCHES:
        raise InputError(f"cifar10 has no split {split!r}: expected 'train' or 'test'")
    place = _layout(require("cifar10", folder))
    read = _read_binary if (place / f"{BATCHES[split][0]}.bin").is_file() else _read_pickled
    parts = [read(place, name) for name in BATCHES[split]]
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
    for folder in (place, place / _BINARY, place / _PICKLED):
        if (folder / "test_batch.bin").is_file() or (folder / "test_batch").is_file():
            return folder
    raise DataError(f"{place}: neither {_BINARY} nor {_PICKLED} is here; expected test_batch.bin or test_batch")


def _read_binary(place: Path, name: str) -> tuple[Tensor, Tensor]:
    """Rows of one label byte and 3,072 pixel bytes, one colour after the other."""
    path = place / f"{name}.bin"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = np.fromfile(path, dtype=np.uint8)
    if content.size == 0 or content.size % (_PIXELS + 1):
        raise DataError(f"{path}: {content.size:,} bytes are no whole number of images; the file is cut short")
    rows = content.reshape(-1, _PIXELS + 1)
    return torch.from_numpy(rows[:, 1:]).reshape(-1, *_SHAPE), _classes(path, rows[:, 0])


def _read_pickled(place: Path, name: str) -> tuple[Tensor, Tensor]:
    path = place / name
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    content = read_arrays(path)
    images = content.get("data")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != _PIXELS:
        raise DataError(f"{path}: 'data' is not an array of rows of {_PIXELS} bytes")
    if len(images) == 0:
        raise DataError(f"{path}: has no images")
    labels = _whole_numbers(content.get("labels"), len(images))
    if labels is None:
        raise DataError(f"{path}: 'labels' are not {len(images)} whole numbers")
    return torch.from_numpy(images.copy()).reshape(-1, *_SHAPE), _classes(path, labels)


def _whole_numbers(labels: Any, count: int) -> np.ndarray | None:
    """A list or an array of so many whole numbers as an array; ``None`` if it is anything else."""
    try:
        numbers = np.asarray(labels)
    except ValueError:  # lists within the list, of several lengths
        return None
    return numbers if numbers.dtype.kind in "iu" and numbers.shape == (count,) else None


def _classes(path: Path, labels: np.ndarray) -> Tensor:
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= len(CLASSES):
        wrong = lowest if lowest < 0 else highest
        raise DataError(f"{path}: has class {wrong}, expected 0 to {len(CLASSES) - 1}")
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
    unfinished = path.with_name(path.name + ".unfinished")
    np.concatenate([labels[:, None].astype(np.uint8), images], 1).tofile(unfinished)
    os.replace(unfinished, path)
