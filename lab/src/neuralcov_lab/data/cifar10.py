"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32×32 pixels in ten classes, in the published binary layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.arrange import BATCHES, BINARY
from neuralcov_lab.fetching.cache import require

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)
_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


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


def _layout(place: Path) -> Path:
    for folder in (place, place / BINARY):
        if (folder / "test_batch.bin").is_file():
            return folder
    raise DataError(f"{place}: no {BINARY} is here; expected test_batch.bin (pickled batches are not read)")


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
