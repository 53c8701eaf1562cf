"""The smallest of many random words, with how often each came: what is repeated, in a few kilobytes.

Of all words that came, the smallest are kept. A word among them was among them from its first time on, since the
largest that is kept only falls: so its count is complete, and the share of repetitions among the words kept is an
estimate of that among all; exact as long as there is room for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

SKETCH_SIZE = 4096


def _no_words() -> np.ndarray:
    return np.empty(0, dtype=np.uint64)


def _no_times() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sketch:
    """Hold the smallest words, rising, and how often each came; ``times`` is ``None`` where a file does not tell."""

    words: np.ndarray = field(default_factory=_no_words)
    times: np.ndarray | None = field(default_factory=_no_times)

    def add(self, words: np.ndarray) -> Sketch:
        """Return the sketch after more words."""
        found, times = np.unique(words, return_counts=True)
        return self.merge(Sketch(found[:SKETCH_SIZE], times[:SKETCH_SIZE].astype(np.int64)))

    def merge(self, other: Sketch) -> Sketch:
        """Return the sketch of both."""
        words, place = np.unique(np.concatenate([self.words, other.words]), return_inverse=True)
        if self.times is None or other.times is None:
            return Sketch(words[:SKETCH_SIZE], None)
        times = np.zeros(len(words), dtype=np.int64)
        np.add.at(times, place.reshape(-1), np.concatenate([self.times, other.times]))
        return Sketch(words[:SKETCH_SIZE], times[:SKETCH_SIZE])

    @property
    def repeated(self) -> float | None:
        """Return the share of all words that had come before; ``None`` where that is not known."""
        if self.times is None or not len(self.times):
            return None
        return 1 - len(self.times) / float(self.times.sum())
