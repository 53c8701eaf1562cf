"""Letter recognition (Frey and Slate, 1991): 20,000 printed capitals of many typefaces, 16 whole numbers each.

Rows that say the same are taken once, which leaves 18,668. They are ordered by the SHA-256 of a seed and the row; the
first 4,000 are ``test``, the rest ``train``. So the split depends on the rows alone, and no row is on two sides.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

CLASSES = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
FEATURES = 16
TEST = 4_000
SEED = 0
SPLITS = ("train", "test")


def letter(split: str = "test", folder: Path | None = None) -> Samples:
    """14,668 letters to train with and 4,000 to test with, each feature with mean 0 and deviation 1 in training.

    Args:
        split: ``train`` or ``test``.
        folder: where ``letter.dat`` lies; by default the cache, which ``neuralcov data get letter`` fills.
    """
    if split not in SPLITS:
        raise InputError(f"letter has no split {split!r}: expected 'train' or 'test'")
    parts = split_rows(read_rows(require("letter", folder) / "letter.dat"))
    features, labels = parts[split]
    training = parts["train"][0]
    scaled = (features - training.mean(0)) / np.maximum(training.std(0), 1e-6)
    return Samples(f"letter {split}", torch.from_numpy(scaled).float(), torch.from_numpy(labels), CLASSES)


def read_rows(path: Path) -> list[str]:
    """Return the rows of 16 numbers and a letter, as they stand; a header as KEEL writes it is passed over."""
    try:
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    rows = [line for line in lines if line.count(",") == FEATURES and not line.startswith("@")]
    if not rows:
        raise DataError(f"{path}: has no rows of {FEATURES} numbers and a letter")
    return rows


def split_rows(rows: list[str], test: int = TEST, seed: int = SEED) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features and classes of both splits, in the order of the rows' hashes; copies are left out."""
    distinct = sorted(set(rows), key=lambda row: hashlib.sha256(f"{seed} {row}".encode()).hexdigest())
    if len(distinct) <= test:
        raise DataError(f"letter: {len(distinct):,} distinct rows, expected more than {test:,}")
    table = [row.split(",") for row in distinct]
    try:
        features = np.array([row[:-1] for row in table], dtype=np.float64)
        labels = np.array([CLASSES.index(row[-1]) for row in table])
    except ValueError as error:
        raise DataError(f"letter: expected rows of {FEATURES} numbers and a letter ({error})") from error
    return {"test": (features[:test], labels[:test]), "train": (features[test:], labels[test:])}
