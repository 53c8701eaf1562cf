"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017): 70,000 grey images each, as IDX files."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.archives import LARGEST
from neuralcov_lab.fetching.cache import require

DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_PREFIX = {"train": "train", "test": "t10k"}
_BYTES = 8
_PIECE = 1 << 22


class Readable(Protocol):
    """Read bytes, packed or not."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""


def mnist(split: str = "test", folder: Path | None = None) -> Samples:
    """60,000 handwritten digits to train with and 10,000 to test with.

    Args:
        split: ``train`` or ``test``.
        folder: where the four IDX files lie, raw or gzipped; by default the cache, which
            ``neuralcov data get mnist`` fills.
    """
    return _load("mnist", split, folder, DIGITS)


def fashion_mnist(split: str = "test", folder: Path | None = None) -> Samples:
    """60,000 pictures of clothes to train with and 10,000 to test with, laid out like MNIST."""
    return _load("fashion-mnist", split, folder, CLOTHES)


def read_idx(path: Path) -> Tensor:
    """Return an IDX file of unsigned bytes, raw or gzipped."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = _content(path, file)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read, or is cut short ({error})") from error
    shape, pixels = content
    return torch.from_numpy(pixels.reshape(shape))


def _content(path: Path, file: Readable) -> tuple[tuple[int, ...], np.ndarray]:
    """Return shape and bytes; no more is unpacked than the shape says."""
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] != _BYTES:
        raise DataError(f"{path}: not an IDX file of unsigned bytes")
    lengths = file.read(4 * head[3])
    if len(lengths) < 4 * head[3]:
        raise DataError(f"{path}: {4 + len(lengths)} bytes, expected at least {4 + 4 * head[3]}; the file is cut short")
    shape = tuple(int(length) for length in np.frombuffer(lengths, dtype=">u4"))
    count = math.prod(shape)
    if not count or not shape:
        raise DataError(f"{path}: shape {shape} holds nothing")
    if count > LARGEST:
        raise DataError(f"{path}: shape {shape} says {count:,} bytes, more than any such data set; not unpacked")
    pieces, left = [], count
    while left and (piece := file.read(min(left, _PIECE))):
        pieces.append(piece)
        left -= len(piece)
    start = 4 + len(lengths)
    if left or file.read(1):
        found = f"{start + count - left:,} bytes" if left else f"more than {start + count:,} bytes"
        raise DataError(f"{path}: {found}, expected {start + count:,} for shape {shape}; the file is damaged")
    return shape, np.frombuffer(b"".join(pieces), dtype=np.uint8).copy()


def _load(name: str, split: str, folder: Path | None, classes: tuple[str, ...]) -> Samples:
    if split not in _PREFIX:
        raise InputError(f"{name} has no split {split!r}: expected 'train' or 'test'")
    place = require(name, folder)
    images = read_idx(_find(place, f"{_PREFIX[split]}-images", 3))
    labels = read_idx(_find(place, f"{_PREFIX[split]}-labels", 1)).long()
    if images.dim() != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{place}: images of shape {tuple(images.shape)} and {len(labels)} labels do not go together")
    if int(labels.max()) >= len(classes):
        raise DataError(f"{place}: has class {int(labels.max())}, expected 0 to {len(classes) - 1}")
    return Samples(f"{name} {split}", images[:, None], labels, classes)


def _find(place: Path, stem: str, axes: int) -> Path:
    """Return the file under any of the names in use, also in the ``raw`` folder that some tools make."""
    names = [f"{stem}{dot}idx{axes}-ubyte{packed}" for dot in "-." for packed in ("", ".gz")]
    for folder in (place, place / "raw"):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise DataError(f"{place}: there is no {names[0]}, raw or gzipped")
