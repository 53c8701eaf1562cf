"""The state of a campaign without its model: corpus, parents under way, counts and faults, as the log adds up to."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.log import (
    KEPT,
    NO_RESULT,
    NOT_FINITE,
    REJECTED,
    AppliedMutation,
    WaveRecord,
    columns,
)
from neuralcov.fuzz.faults.fault import Fault

_NOBODY = -1
_LATEST = 1000
_INHERITED = ("parent", "prediction", "mutation", "setting", "row", "batch_size")

# An entry of the corpus: what the log told of the candidate when it was kept, and:
_ENTRY = np.dtype(
    [
        *columns(*_INHERITED),
        ("root", np.int32),  # the root input that its lineage begins with
        ("comparison", np.int32),  # the comparison input of its mutants
        ("moved", np.bool_),  # whether its lineage holds a geometric mutation
        ("picks", np.int32),  # how many of its mutants were kept
        ("wave", np.int32),  # when it was kept
    ]
)


class Corpus:
    """Hold root inputs and kept mutants with their lineage. Entries 0 … roots − 1 are the root inputs.

    Args:
        roots: the root inputs as they are stored, on the device.
        predictions: the class the model gives each, −1 where there is none.
    """

    def __init__(self, roots: Tensor, predictions: np.ndarray) -> None:
        self.roots = len(roots)
        self._inputs = _GrowingRows(roots)
        # What mutants are compared with: the root inputs, then each one moved by a geometric mutation.
        self._comparisons = _GrowingRows(roots)
        self._entries = np.zeros(self.roots, _ENTRY)
        self._count = self.roots
        entries = self.entries
        entries["parent"] = entries["mutation"] = entries["wave"] = -1
        entries["root"] = entries["comparison"] = np.arange(self.roots)
        entries["prediction"] = predictions

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

    def add(self, kept: np.ndarray, moves: np.ndarray, wave: int, inputs: Tensor, comparisons: Tensor) -> None:
        """Add the mutants that a wave kept.

        Args:
            kept: their rows of the wave's candidates.
            moves: which of them a geometric mutation has just moved.
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
        fresh["moved"] = parents["moved"] | moves
        fresh["comparison"] = parents["comparison"]
        fresh["comparison"][moves] = len(self._comparisons) + np.arange(int(moves.sum()))
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
        found: list[AppliedMutation] = []
        while entry >= self.roots:
            row = self._entries[entry]
            found.append(AppliedMutation.of(row))
            entry = int(row["parent"])
        return tuple(reversed(found))


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


@dataclass
class CampaignCounts:
    """Count what a campaign has done so far."""

    waves: int = 0
    started: int = 0
    finished: int = 0
    candidates: int = 0
    acceptable: int = 0
    judged: int = 0
    kept: int = 0
    faults: int = 0
    last_kept: float = 0.0
    last_fault: float = 0.0
    seconds: float = 0.0
    reached: Counter[int] = field(default_factory=Counter)
    # Judged and kept candidates of the latest waves, as many as make the last thousand.
    _latest: deque[tuple[int, int]] = field(default_factory=deque, repr=False)

    def add_wave(self, judged: int, kept: int) -> None:
        """Count the candidates of a wave that were judged, and those of them that were kept."""
        self.judged += judged
        self.kept += kept
        self._latest.append((judged, kept))
        while self.latest[0] - self._latest[0][0] >= _LATEST:
            self._latest.popleft()

    @property
    def latest(self) -> tuple[int, int]:
        """Return how many of about the last thousand judged candidates there are, and how many were kept."""
        return sum(judged for judged, _ in self._latest), sum(kept for _, kept in self._latest)

    @property
    def admitted(self) -> float:
        """Share of the judged candidates that were kept."""
        return self.kept / self.judged if self.judged else 0.0


class CampaignState:
    """Add up the log. Applying the same records gives the same state.

    Args:
        roots: the root inputs, on the device the corpus is to be on.
        labels: the class each should have, −1 where unknown.
        predictions: the class the model gives each, −1 where it gives none.
        can_be_seed: which root inputs may be mutated.
        geometric: of every mutation, whether it is geometric.
        fault_types: the names of what can be wrong, a bit each.
        tries: mutants per parent.
        wave: parents that advance together, one in each lane.
    """

    def __init__(
        self,
        roots: Tensor,
        labels: np.ndarray,
        predictions: np.ndarray,
        can_be_seed: np.ndarray,
        *,
        geometric: np.ndarray,
        fault_types: Sequence[str],
        tries: int,
        wave: int,
    ) -> None:
        self.corpus = Corpus(roots, predictions)
        self.labels = labels
        self.faults: list[Fault] = []
        self.counts = CampaignCounts()
        # By lane: the parent in it, and how many mutants of it were made.
        self.parents = np.full(wave, _NOBODY, dtype=np.int32)
        self.tried = np.zeros(wave, dtype=np.int16)
        self.geometric = geometric
        self._seeds = can_be_seed
        self._fault_types = tuple(fault_types)
        self._tries = tries

    @property
    def can_be_seed(self) -> np.ndarray:
        """Return which entries may be sampled: those the model copes with and some mutation may still be applied to."""
        entries = self.corpus.entries
        found = np.ones(len(entries), dtype=bool)
        found[: self.corpus.roots] = self._seeds
        if self.geometric.all():
            found &= ~entries["moved"]
        return found

    @property
    def idle(self) -> bool:
        """Return whether no parent is under way."""
        return bool((self.parents == _NOBODY).all())

    def apply(self, record: WaveRecord, inputs: Tensor | None = None, comparisons: Tensor | None = None) -> list[Fault]:
        """Take in a wave; return the faults it found. ``inputs``, ``comparisons`` may be at hand on the device."""
        saved = torch.from_numpy(record.inputs)
        first = len(self.corpus)
        device = self.corpus.device
        self._keep(
            record,
            saved.to(device) if inputs is None else inputs,
            torch.from_numpy(record.comparisons).to(device) if comparisons is None else comparisons,
        )
        self._advance(record)
        found = self._faults(record, saved, first)
        self._count(record, found)
        return found

    def _keep(self, record: WaveRecord, inputs: Tensor, comparisons: Tensor) -> None:
        if not len(record.kept):
            return
        kept = record.candidates[record.kept]
        among_saved = np.flatnonzero(record.candidates["verdict"][record.saved] == KEPT)
        self.corpus.add(kept, self.geometric[kept["mutation"]], record.wave, inputs[among_saved], comparisons)

    def _advance(self, record: WaveRecord) -> None:
        """Free the lanes of parents whose mutant was kept or whose tries are used up."""
        rows = record.candidates
        lane, tries = rows["lane"], rows["tries"]
        before = np.where(rows["fresh"] != 0, 0, self.tried[lane])
        self.counts.candidates += int((tries - before).sum())
        self.parents[lane], self.tried[lane] = rows["parent"], tries
        done = (rows["verdict"] == KEPT) | (tries >= self._tries)
        self.parents[lane[done]] = _NOBODY
        self.counts.started += int(rows["fresh"].sum())
        self.counts.finished += int(done.sum())

    def _faults(self, record: WaveRecord, inputs: Tensor, first: int) -> list[Fault]:
        """Return the faults of a wave, whose first kept mutant is the entry ``first`` of the corpus."""
        entry_of = {int(row): first + place for place, row in enumerate(record.kept)}
        found: list[Fault] = []
        for place, row in enumerate(map(int, record.saved)):
            if record.candidates["fault_types"][row]:
                number = len(self.faults) + len(found)
                found.append(self._fault(record, row, inputs[place], entry_of.get(row), number))
        self.faults.extend(found)
        return found

    def _fault(self, record: WaveRecord, row: int, saved: Tensor, entry: int | None, number: int) -> Fault:
        candidate = record.candidates[row]
        parent, bits = int(candidate["parent"]), int(candidate["fault_types"])
        root = int(self.corpus.entries["root"][parent])
        return Fault(
            number=number,
            fault_types=tuple(name for bit, name in enumerate(self._fault_types) if bits >> bit & 1),
            wave=record.wave,
            row=row,
            root=root,
            entry=entry,
            label=_class(self.labels[root]),
            before=_class(self.corpus.entries["prediction"][root]),
            after=_class(candidate["prediction"]),
            steps=(*self.corpus.steps(parent), AppliedMutation.of(candidate)),
            message=record.messages.get(row),
            input=saved,
        )

    def _count(self, record: WaveRecord, found: list[Fault]) -> None:
        counts, verdict = self.counts, record.candidates["verdict"]
        counts.waves = record.wave + 1
        counts.seconds = record.seconds
        acceptable = verdict != REJECTED
        finite = record.candidates["fault_types"] & 1 << NOT_FINITE == 0
        counts.acceptable += int(acceptable.sum())
        kept = len(record.kept)
        counts.add_wave(int((finite & acceptable & (verdict != NO_RESULT)).sum()), kept)
        counts.faults += len(found)
        counts.last_kept = record.seconds if kept else counts.last_kept
        counts.last_fault = record.seconds if found else counts.last_fault
        counts.reached.update(fault.after for fault in found if fault.after is not None)


def _class(number: int) -> int | None:
    return None if number < 0 else int(number)
