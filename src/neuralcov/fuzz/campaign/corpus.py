"""The queue: root inputs and the mutants kept so far, on the device, with where each came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ENTRY = np.dtype(
    [
        ("parent", np.int32),
        ("root", np.int32),
        ("reference", np.int32),
        ("moved", np.bool_),
        ("picks", np.int32),
        ("prediction", np.int64),
        ("mutation", np.int16),
        ("setting", np.int64),
        ("place", np.int32),
        ("size", np.int32),
        ("wave", np.int32),
    ]
)


@dataclass(frozen=True)
class AppliedMutation:
    """One mutation of a lineage: which, in what form, and at what place of how large a batch it was drawn."""

    mutation: int
    setting: int
    place: int
    size: int


class Corpus:
    """Inputs and their lineage. Entries 0 … roots − 1 are the root inputs.

    Args:
        roots: the root inputs as they are stored, on the device.
        predictions: the class the model gives each, −1 where there is none.
    """

    def __init__(self, roots: Tensor, predictions: np.ndarray) -> None:
        self.roots = len(roots)
        self._inputs = _Grown(roots)
        # What mutants are compared with: the root inputs, then each one moved by a geometric mutation.
        self._references = _Grown(roots)
        self._entries = np.zeros(self.roots, _ENTRY)
        self._count = self.roots
        entries = self.entries
        entries["parent"] = entries["mutation"] = entries["wave"] = -1
        entries["root"] = entries["reference"] = np.arange(self.roots)
        entries["prediction"] = predictions

    def __len__(self) -> int:
        return self._count

    @property
    def entries(self) -> Any:
        """The table of lineage, a row per entry; picks may be written to."""
        return self._entries[: self._count]

    def inputs(self, rows: np.ndarray | slice) -> Tensor:
        """Inputs as they are stored, on the device."""
        return self._inputs.take(rows)

    def references(self, rows: np.ndarray) -> Tensor:
        """What mutants of these entries are compared with."""
        return self._references.take(self.entries["reference"][rows])

    def add(self, inputs: Tensor, references: Tensor, table: dict[str, np.ndarray]) -> None:
        """New entries.

        Args:
            inputs: as they are stored.
            references: the moved root inputs of those rows that a geometric mutation has just moved, in order.
            table: ``parent``, ``prediction``, ``mutation``, ``setting``, ``place``, ``size``, ``wave`` and ``moves``,
                which tells those rows.
        """
        parents, moves = table["parent"], table["moves"]
        fresh = np.zeros(len(parents), _ENTRY)
        for name in ("parent", "prediction", "mutation", "setting", "place", "size", "wave"):
            fresh[name] = table[name]
        above = self.entries[parents]
        fresh["root"] = above["root"]
        fresh["moved"] = above["moved"] | moves
        fresh["reference"] = above["reference"]
        fresh["reference"][moves] = len(self._references) + np.arange(int(moves.sum()))
        self._inputs.add(inputs)
        self._references.add(references)
        needed = self._count + len(fresh)
        if needed > len(self._entries):
            self._entries = np.concatenate([self._entries, np.zeros(max(needed, 1024), _ENTRY)])
        self._entries[self._count : needed] = fresh
        self._count = needed

    def steps(self, entry: int) -> tuple[AppliedMutation, ...]:
        """The mutations that led from the root input to an entry, in order."""
        found: list[AppliedMutation] = []
        while entry >= self.roots:
            row = self._entries[entry]
            found.append(AppliedMutation(*(int(row[name]) for name in ("mutation", "setting", "place", "size"))))
            entry = int(row["parent"])
        return tuple(reversed(found))


class _Grown:
    """Rows on a device that more can be added to without copying all of them each time."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    def take(self, rows: np.ndarray | slice) -> Tensor:
        if isinstance(rows, slice):
            return self._rows[: self._count][rows]
        return self._rows[torch.from_numpy(np.asarray(rows, np.int64)).to(self._rows.device, non_blocking=True)]

    def add(self, more: Tensor) -> None:
        needed = self._count + len(more)
        if needed > len(self._rows):
            larger = self._rows.new_empty(max(needed, 2 * len(self._rows)), *self._rows.shape[1:])
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        self._rows[self._count : needed] = more
        self._count = needed
