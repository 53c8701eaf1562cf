"""20 Newsgroups (Lang, 1995): 18,821 posts of twenty groups, split by date, as token numbers.

The texts are those that Cachopo (2007) made of the version "by date": lower case, letters only, the subject in front.
The posts of ``test`` were written after those of ``train``.
"""

from __future__ import annotations

from pathlib import Path

import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples
from neuralcov_lab.data.vocabulary import PADDING, Vocabulary
from neuralcov_lab.errors import DataError
from neuralcov_lab.fetching.cache import require

CLASSES = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)
LENGTH = 96
VOCABULARY = 15_002
SPLITS = ("train", "test")
_HEAD = 4  # Names, kinds and roles of the two columns, and an empty line.

Post = tuple[list[str], int]


def newsgroups(split: str = "test", folder: Path | None = None) -> Samples:
    """11,293 posts to train with and 7,528 to test with, the first 96 words of each.

    Args:
        split: ``train`` or ``test``.
        folder: where ``20newsgroups-train.tab`` and ``20newsgroups-test.tab`` lie; by default the cache, which
            ``neuralcov data get newsgroups`` fills.
    """
    if split not in SPLITS:
        raise InputError(f"newsgroups has no split {split!r}: expected 'train' or 'test'")
    place = require("newsgroups", folder)
    training = read_posts(place / "20newsgroups-train.tab")
    posts = training if split == "train" else read_posts(place / "20newsgroups-test.tab")
    vocabulary = Vocabulary.counted((words for words, _ in training), VOCABULARY)
    inputs = torch.from_numpy(vocabulary.encode([words for words, _ in posts], LENGTH, start=True))
    return Samples(
        f"newsgroups {split}",
        inputs,
        torch.tensor([label for _, label in posts]),
        CLASSES,
        lengths=(inputs != PADDING).sum(1).clamp(min=1),
        words=vocabulary.entries,
    )


def read_posts(path: Path) -> list[Post]:
    """Return words and class of every post in a file of lines, each a group's name and a text with a tab between."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    posts = []
    for number, line in enumerate(lines[_HEAD:], _HEAD + 1):
        group, _, text = line.partition("\t")
        if group not in CLASSES:
            raise DataError(f"{path}: line {number} has group {group!r}, expected one such as {CLASSES[0]}")
        posts.append((text.split(), CLASSES.index(group)))
    if not posts:
        raise DataError(f"{path}: has no posts")
    return posts
