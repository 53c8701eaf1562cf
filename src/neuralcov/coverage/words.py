"""64-bit words of inputs, shown as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class Words(Sequence[str | None]):
    """Show rows of 64-bit words as hexadecimal text, made when it is asked for; ``None`` for no word.

    Args:
        words: one or several for each row.
        nothing: the word that stands for none.
    """

    def __init__(self, words: np.ndarray, nothing: int | None = None) -> None:
        self._words = words.view(np.uint64).reshape(len(words), words[0].size if len(words) else 1)
        self.nothing = nothing
        self.nbytes = self._words.nbytes

    @property
    def numbers(self) -> np.ndarray:
        """The words as whole numbers with a sign, one row for each, as files hold them."""
        return self._words.view(np.int64)

    def __len__(self) -> int:
        return len(self._words)

    @overload
    def __getitem__(self, index: int) -> str | None: ...

    @overload
    def __getitem__(self, index: slice) -> Words: ...

    def __getitem__(self, index: int | slice) -> str | Words | None:
        """Return one row as text, or some rows."""
        if isinstance(index, slice):
            return Words(self._words[index], self.nothing)
        row = self._words[index].tolist()
        return None if row == [self.nothing] else "".join(f"{word:016x}" for word in row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
