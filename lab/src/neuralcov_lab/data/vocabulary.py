"""Number the words of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

PADDING, UNKNOWN = 0, 1
_SPECIAL = ("<pad>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """Number tokens: 0 is padding, 1 stands for every token that is not listed.

    >>> words = Vocabulary.counted([["good", "film"], ["good"]], size=3)
    >>> words.numbers(["good", "bad"]), words.words([2, 1])
    ([2, 1], ['good', '<unk>'])
    """

    entries: tuple[str, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {entry: number for number, entry in enumerate(self.entries)})

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def counted(cls, texts: Iterable[Sequence[str]], size: int) -> Vocabulary:
        """Keep the most frequent tokens, ties in alphabetical order, to ``size`` entries with the two special ones."""
        counts = Counter(token for text in texts for token in text)
        by_rank = sorted(counts, key=lambda token: (-counts[token], token))
        return cls((*_SPECIAL, *by_rank[: size - len(_SPECIAL)]))

    def numbers(self, text: Sequence[str]) -> list[int]:
        """Return the tokens' numbers."""
        return [self._index.get(token, UNKNOWN) for token in text]

    def words(self, numbers: Iterable[int]) -> list[str]:
        """Return the tokens behind numbers, without padding."""
        return [self.entries[int(number)] for number in numbers if int(number) != PADDING]

    def encode(self, texts: Sequence[Sequence[str]], length: int, *, start: bool = False) -> np.ndarray:
        """Return ``(texts, length)`` numbers: the last ``length`` tokens of each text, padded behind.

        A review's verdict is mostly at its end, so that the end is what is kept; with ``start`` it is the start.
        """
        table = np.full((len(texts), length), PADDING, dtype=np.int16)
        for row, text in enumerate(texts):
            kept = self.numbers(text[:length] if start else text[-length:])
            table[row, : len(kept)] = kept
        return table
