"""Samples of a suite, evenly spaced over it however long it turns out to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class EvenSample:
    """Keep every n-th input, and double n whenever there are too many: no random choice, and no length to know.

    After the last input there are between half of ``most`` and ``most`` rows, or all where there were no more.

    Args:
        most: how many rows to keep at most.
    """

    def __init__(self, most: int) -> None:
        self._most, self._step, self._seen, self._kept = most, 1, 0, 0
        self._parts: list[list[Tensor]] = []

    def add(self, size: int, read: Callable[[Tensor], Sequence[Tensor]]) -> None:
        """Add those inputs of a batch that are due; ``read`` returns tensors with the rows it is given."""
        first = -self._seen % self._step
        self._seen += size
        if first >= size:
            return
        rows = torch.arange(first, size, self._step)
        self._parts.append(list(read(rows)))
        self._kept += len(rows)
        while self._kept > self._most:
            self._thin()

    def _thin(self) -> None:
        """Keep every second row."""
        columns = [torch.cat(column)[::2] for column in zip(*self._parts, strict=True)]
        self._parts, self._kept, self._step = [columns], len(columns[0]), 2 * self._step

    def rows(self) -> list[Tensor] | None:
        """Return the tensors with all rows kept; ``None`` if there is none."""
        if not self._parts:
            return None
        return [torch.cat(column) for column in zip(*self._parts, strict=True)]
