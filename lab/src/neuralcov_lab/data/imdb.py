"""IMDB (Maas et al., 2011): 50,000 film reviews, as token numbers, with a split that depends on nothing but the text.

Reviews that say the same words are taken once. The rest is ordered, within each class, by the SHA-256 of a seed and
the words; the first 8,750 of each class are ``test``, the next 8,750 ``train``, what is left ``validation``. So any
copy of the reviews, in any order and layout, gives the same split, and no review is in two of its parts.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from neuralcov.core.errors import InputError
from neuralcov.core.files import atomic_write
from neuralcov.sources.samples import Samples
from neuralcov_lab.data.vocabulary import PADDING, Vocabulary
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

CLASSES = ("negative", "positive")
LENGTH = 128
VOCABULARY = 25_002
SEED = 0
PER_CLASS = 8_750
SPLITS = ("train", "test", "validation")
_RECIPE = {"tokenizer": 1, "seed": SEED, "per class": PER_CLASS, "vocabulary": VOCABULARY, "length": LENGTH}
_ENCODED = "encoded.npz"
_MARKUP = re.compile(r"<[^>]*>")
_TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)*|[!?]")

Review = tuple[str, int]
Tokenised = tuple[list[str], int]


def imdb(split: str = "test", folder: Path | None = None) -> Samples:
    """17,500 reviews to train with, 17,500 to test with and 14,576 for validation, 128 tokens each.

    Args:
        split: ``train``, ``test`` or ``validation``.
        folder: ``aclImdb``, a folder that holds it, or one with ``reviews.csv``; by default the cache, which
            ``neuralcov data get imdb`` fills. The encoded reviews are kept beside the reviews where that
            folder can be written.
    """
    if split not in SPLITS:
        raise InputError(f"imdb has no split {split!r}: expected {', '.join(map(repr, SPLITS))}")
    content = _encoded(require("imdb", folder))
    inputs = torch.from_numpy(content[f"{split} tokens"])
    labels = torch.from_numpy(content[f"{split} labels"]).long()
    return Samples(
        f"imdb {split}",
        inputs,
        labels,
        CLASSES,
        lengths=(inputs != PADDING).sum(1).clamp(min=1),
        words=_words(content),
    )


def imdb_vocabulary(folder: Path | None = None) -> Vocabulary:
    """Return the 25,002 tokens: padding, unknown and the most frequent ones of the training reviews."""
    return Vocabulary(_words(_encoded(require("imdb", folder))))


def _words(content: dict[str, np.ndarray]) -> tuple[str, ...]:
    return tuple(str(content["vocabulary"]).split("\n"))


def split_reviews(reviews: list[Tokenised], per_class: int = PER_CLASS, seed: int = SEED) -> dict[str, list[Tokenised]]:
    """Reviews in their splits, each ordered by hash, classes mixed; copies are left out."""
    by_class: dict[int, dict[str, Tokenised]] = {0: {}, 1: {}}
    for text, label in reviews:
        words = " ".join(token for token in text if token not in "!?")
        by_class[label].setdefault(hashlib.sha256(f"{seed} {words}".encode()).hexdigest(), (text, label))
    smallest = min(len(group) for group in by_class.values())
    if smallest < 2 * per_class:
        raise DataError(f"imdb: {smallest:,} distinct reviews of one class, expected at least {2 * per_class:,}")
    parts: dict[str, list[tuple[str, Tokenised]]] = {split: [] for split in SPLITS}
    for group in by_class.values():
        ordered = sorted(group.items())
        parts["test"] += ordered[:per_class]
        parts["train"] += ordered[per_class : 2 * per_class]
        parts["validation"] += ordered[2 * per_class :]
    return {split: [review for _, review in sorted(part)] for split, part in parts.items()}


def encode_reviews(reviews: list[Tokenised], per_class: int = PER_CLASS) -> dict[str, np.ndarray]:
    """Every split's tokens and labels, and the vocabulary of the training reviews, as arrays."""
    parts = split_reviews(reviews, per_class)
    vocabulary = Vocabulary.counted((text for text, _ in parts["train"]), VOCABULARY)
    arrays = {"vocabulary": np.array("\n".join(vocabulary.entries)), "recipe": np.array(json.dumps(_RECIPE))}
    for split, part in parts.items():
        arrays[f"{split} tokens"] = vocabulary.encode([text for text, _ in part], LENGTH)
        arrays[f"{split} labels"] = np.array([label for _, label in part], dtype=np.int8)
    return arrays


def read_reviews(place: Path) -> Iterator[Review]:
    """Texts and classes from ``aclImdb`` folders or a file of ``review,sentiment`` rows."""
    for folder in (place, place / "aclImdb"):
        if (folder / "train" / "pos").is_dir():
            return _read_folders(folder)
    if (place / "reviews.csv").is_file():
        return _read_csv(place / "reviews.csv")
    raise DataError(f"{place}: has neither aclImdb with train/pos in it nor reviews.csv")


def _encoded(place: Path) -> dict[str, np.ndarray]:
    path = place / _ENCODED
    if path.is_file():
        try:
            with np.load(path, allow_pickle=False) as content:
                if str(content["recipe"]) == json.dumps(_RECIPE):
                    return dict(content)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass  # Made anew from the reviews.
    arrays = encode_reviews([(tokens(text), label) for text, label in read_reviews(place)])
    _keep(path, arrays)
    return arrays


def _keep(path: Path, arrays: dict[str, np.ndarray]) -> None:
    # A folder that cannot be written costs time at the next load, no more.
    with suppress(OSError), atomic_write(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _read_folders(folder: Path) -> Iterator[Review]:
    for split in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            for path in sorted((folder / split / name).glob("*.txt")):
                yield _read_text(path), label


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not text in UTF-8 ({error})") from error


def _read_csv(path: Path) -> Iterator[Review]:
    csv.field_size_limit(min(sys.maxsize, 1 << 24))
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                if row["review"] is None:
                    raise ValueError(f"line {rows.line_num} has no review")
                yield row["review"], CLASSES.index(row["sentiment"])
    except (csv.Error, KeyError, ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected rows of review and sentiment, positive or negative ({error})") from error


def tokens(text: str) -> list[str]:
    """Return words in lower case, with their apostrophes, and the marks that carry feeling.

    >>> tokens("I <br /> DON'T know... Great?!")
    ['i', "don't", 'know', 'great', '?', '!']
    """
    return _TOKEN.findall(_MARKUP.sub(" ", text.lower()).replace("\u2019", "'"))
