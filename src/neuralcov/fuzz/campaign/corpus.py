"""The corpus of a campaign: root inputs and kept mutants with their lineage, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.log import MADE, AppliedMutation, columns, steps_of

_INHERITED = ("parent", "prediction", "margin", "rival", *MADE)

# An entry of the corpus: what the log told of the candidate when it was kept, and:
_ENTRY = np.dtype(
    [
        *columns(*_INHERITED),
        ("root", np.int32),  # the root input that its lineage begins with
        ("comparison", np.int32),  # the comparison input of its mutants
        ("moved", np.bool_),  # whether its lineage holds a geometric mutation
        ("picks", np.int32),  # how many of its mutants were kept
        ("wave", np.int32),  # when it was kept
        ("children", np.int32),  # how many of its mutants the model was run on
        ("sampled", np.int32),  # how often it was sampled
        ("depth", np.int32),  # how many kept mutants its lineage holds
    ]
)


class Corpus:
    """Hold root inputs and kept mutants with their lineage. Entries 0 … roots − 1 are the root inputs.

    Args:
        roots: the root inputs as they are stored, on the device.
        predictions: the class the model gives each, −1 where there is none.
        margins: how far each is from being misread, see ``CANDIDATE``; NaN where unknown.
        rivals: the strongest other class of each, −1 where unknown.
    """

    def __init__(self, roots: Tensor, predictions: np.ndarray, margins: np.ndarray, rivals: np.ndarray) -> None:
        self.roots = len(roots)
        self._inputs = _GrowingRows(roots)
        # What mutants are compared with: the root inputs, then each one moved by a geometric mutation.
        self._comparisons = _GrowingRows(roots)
        self._entries = np.zeros(self.roots, _ENTRY)
        self._count = self.roots
        entries = self.entries
        entries["parent"] = entries["mutation"] = entries["then_mutation"] = entries["wave"] = -1
        entries["root"] = entries["comparison"] = np.arange(self.roots)
        entries["prediction"] = predictions
        entries["margin"], entries["rival"] = margins, rivals

    def __len__(self) -> int:
        return self._count

    @property
    def device(self) -> torch.device:
        """Return where inputs lie."""
        return self._inputs.device

    @property
    def entries(self) -> Any:
        """Return the table of lineage, a row per entry; picks may be written to."""
        return self._entries[: self._count]

    def inputs(self, rows: np.ndarray | slice) -> Tensor:
        """Return inputs as they are stored, on the device."""
        return self._inputs.take(rows)

    def comparisons(self, rows: np.ndarray) -> Tensor:
        """Return what mutants of these entries are compared with."""
        return self._comparisons.take(self.entries["comparison"][rows])

    def add(
        self, kept: np.ndarray, moves: np.ndarray, taken: np.ndarray, wave: int, inputs: Tensor, comparisons: Tensor
    ) -> None:
        """Add the mutants that a wave kept.

        Args:
            kept: their rows of the wave's candidates.
            moves: which of them a geometric mutation has just moved.
            taken: which of them have a comparison input of their own, moved likewise.
            wave: its number.
            inputs: the mutants as they are stored.
            comparisons: the moved root inputs of the moved ones, in order.
        """
        fresh = np.zeros(len(kept), _ENTRY)
        for name in _INHERITED:
            fresh[name] = kept[name]
        parents = self.entries[kept["parent"]]
        fresh["wave"] = wave
        fresh["root"] = parents["root"]
        fresh["depth"] = parents["depth"] + 1
        fresh["moved"] = parents["moved"] | moves
        fresh["comparison"] = parents["comparison"]
        fresh["comparison"][taken] = len(self._comparisons) + np.arange(int(taken.sum()))
        self._inputs.add(inputs)
        self._comparisons.add(comparisons)
        needed = self._count + len(fresh)
        if needed > len(self._entries):
            self._entries = np.concatenate([self._entries, np.zeros(max(needed, 1024), _ENTRY)])
        self._entries[self._count : needed] = fresh
        self._count = needed
        np.add.at(self.entries["picks"], kept["parent"], 1)

    def steps(self, entry: int) -> tuple[AppliedMutation, ...]:
        """Return the mutations that led from the root input to an entry, in order."""
        found: tuple[AppliedMutation, ...] = ()
        while entry >= self.roots:
            row = self._entries[entry]
            found = (*steps_of(row), *found)
            entry = int(row["parent"])
        return found


class _GrowingRows:
    """Hold rows on a device. Memory doubles when it is full, so that adding rows seldom copies all of them."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    @property
    def device(self) -> torch.device:
        return self._rows.device

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
