"""Number the pieces of words as the small Universal Sentence Encoder does: the likeliest by a table of scores."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from neuralcov_lab.errors import DataError

PADDING = 0
_START, _RESERVED, _UNKNOWN = "\u2581", 6, 0


class Pieces:
    """Cut words into pieces, those whose scores sum up highest (Kudo, 2018).

    Args:
        scores: of every piece, in order; the first six stand for no text.

    >>> pieces = Pieces([("", 0.0)] * 6 + [("\u2581go", -1.0), ("od", -1.0), ("\u2581good", -1.5)])
    >>> pieces.numbers("good go x od")
    [8, 6, 0, 7]
    """

    def __init__(self, scores: Iterable[tuple[str, float]]) -> None:
        listed = list(scores)
        self.names = tuple(name for name, _ in listed)
        self._known = {name: (score, place) for place, (name, score) in enumerate(listed) if place >= _RESERVED}
        self._longest = max(map(len, self._known), default=1)
        self._found: dict[str, list[int]] = {}

    @classmethod
    def read(cls, path: Path) -> Pieces:
        """Read the table, a list of names and scores."""
        try:
            return cls((str(name), float(score or 0)) for name, score in json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{path}: expected a list of pieces and scores ({error})") from error

    def numbers(self, text: str, most: int | None = None) -> list[int]:
        """Return the places of a text's pieces in the table, of at most so many; 0 stands for what it has not."""
        found: list[int] = []
        # No piece goes on over a space, so that words can be cut by themselves.
        for word in unicodedata.normalize("NFKC", text).split(" "):
            if word not in self._found:
                self._found[word] = self._cut(_START + word)
            for place in self._found[word]:
                # Of several unknown ones in a row, one stands.
                if place != _UNKNOWN or not found or found[-1] != _UNKNOWN:
                    found.append(place)
            if most is not None and len(found) >= most:
                return found[:most]
        return found

    def encode(self, texts: Iterable[str], length: int) -> np.ndarray:
        """Return ``(texts, length)`` tokens, the places of the first pieces plus 1, with zeros behind."""
        rows = [self.numbers(text, length) for text in texts]
        table = np.full((len(rows), length), PADDING, dtype=np.int16)
        for row, found in zip(table, rows, strict=True):
            row[: len(found)] = np.array(found) + 1
        return table

    def _cut(self, word: str) -> list[int]:
        """Return the places of a word's pieces, by the best way to each of its letters."""
        best: list[float | None] = [0.0] + [None] * len(word)
        last = [(0, _UNKNOWN)] * (len(word) + 1)
        for start in range(len(word)):
            reached = best[start]
            if reached is None:
                continue
            ends = range(start + 1, min(len(word), start + self._longest) + 1)
            known = [(end, *self._known[word[start:end]]) for end in ends if word[start:end] in self._known]
            # What begins with no piece is one letter of the unknown.
            for end, score, place in known or [(start + 1, 0.0, _UNKNOWN)]:
                before = best[end]
                if before is None or reached + score >= before:
                    best[end], last[end] = reached + score, (start, place)
        found: list[int] = []
        end = len(word)
        while end:
            end, place = last[end]
            found.append(place)
        return found[::-1]
