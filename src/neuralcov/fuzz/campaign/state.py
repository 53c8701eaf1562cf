"""The state of a campaign without its model: corpus, parents under way, counts and faults, as the log adds up to."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.corpus import Corpus
from neuralcov.fuzz.campaign.experience import Experience
from neuralcov.fuzz.campaign.lanes import Lanes
from neuralcov.fuzz.campaign.log import (
    KEPT,
    NO_GAIN,
    NO_RESULT,
    NOT_FINITE,
    REJECTED,
    WaveRecord,
    any_stage,
    stages,
    steps_of,
)
from neuralcov.fuzz.faults.fault import Fault

_LATEST = 1000

# What makes faults different: the root input, the class, the bits of what is wrong, and the error that was thrown.
FaultKey = tuple[int, int, int, str]


@dataclass
class CampaignCounts:
    """Count what a campaign has done so far."""

    waves: int = 0
    started: int = 0
    finished: int = 0
    candidates: int = 0
    acceptable: int = 0
    judged: int = 0
    run: int = 0
    kept: int = 0
    faults: int = 0
    faulty: int = 0
    faulty_kept: int = 0
    last_kept: float = 0.0
    last_fault: float = 0.0
    seconds: float = 0.0
    reached: Counter[int] = field(default_factory=Counter)
    # How often each different fault was seen: root input, class it was taken for, what is wrong, error thrown.
    seen: Counter[FaultKey] = field(default_factory=Counter)
    once: int = 0
    broken: set[int] = field(default_factory=set)
    # Judged and kept candidates of the latest waves, as many as make the last thousand.
    _latest: deque[tuple[int, int]] = field(default_factory=deque, repr=False)

    def add_wave(self, judged: int, kept: int) -> None:
        """Count the candidates of a wave that were judged, and those of them that were kept."""
        self.judged += judged
        self.kept += kept
        self._latest.append((judged, kept))
        while self.latest[0] - self._latest[0][0] >= _LATEST:
            self._latest.popleft()

    def add_fault(self, key: FaultKey) -> None:
        """Count a mutant that shows a fault."""
        self.seen[key] += 1
        self.once += {1: 1, 2: -1}.get(self.seen[key], 0)
        self.broken.add(key[0])
        self.faulty += 1

    @property
    def distinct(self) -> int:
        """Return how many different faults were seen."""
        return len(self.seen)

    @property
    def new_fault_chance(self) -> float:
        """Estimate the chance that the next mutant run shows a fault not seen so far (Good and Turing).

        It is the number of faults seen exactly once, over the mutants run.
        """
        return min(1.0, self.once / self.run) if self.run else 1.0

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
        forms: of every mutation, in how many listed forms it comes; 0 if it has no list.
        fault_types: the names of what can be wrong, a bit each.
        tries: mutants per parent.
        wave: parents that advance together, one in each lane.
        margins: of the root inputs, see ``CANDIDATE``; unknown by default.
        rivals: of the root inputs, see ``CANDIDATE``; unknown by default.
        one_run: whether a parent is done with once the model was run on a mutant of it.
        max_per_group: examples of a fault that are saved.
        moves_comparisons: whether root inputs are moved with their mutants before the two are compared.
    """

    def __init__(
        self,
        roots: Tensor,
        labels: np.ndarray,
        predictions: np.ndarray,
        can_be_seed: np.ndarray,
        *,
        geometric: np.ndarray,
        forms: Sequence[int],
        fault_types: Sequence[str],
        tries: int,
        wave: int,
        margins: np.ndarray | None = None,
        rivals: np.ndarray | None = None,
        one_run: bool = False,
        max_per_group: int = 3,
        moves_comparisons: bool = True,
    ) -> None:
        count = len(roots)
        self.corpus = Corpus(
            roots,
            predictions,
            np.full(count, np.nan) if margins is None else margins,
            np.full(count, -1) if rivals is None else rivals,
        )
        self.labels = labels
        self.faults: list[Fault] = []
        self.counts = CampaignCounts()
        self.lanes = Lanes(wave)
        self.geometric = geometric
        self._seeds = can_be_seed
        self.experience = Experience(count, forms)
        self._fault_types = tuple(fault_types)
        self._tries, self._one_run, self._max_per_group = tries, one_run, max_per_group
        self._moves_comparisons = moves_comparisons

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
        return self.lanes.idle

    def apply(self, record: WaveRecord, inputs: Tensor | None = None, comparisons: Tensor | None = None) -> list[Fault]:
        """Take in a wave; return the faults it found. ``inputs``, ``comparisons`` may be at hand on the device."""
        saved = torch.from_numpy(record.inputs)
        first = len(self.corpus)
        device = self.corpus.device
        fresh = self._learn(record)
        self._keep(
            record,
            saved.to(device) if inputs is None else inputs,
            torch.from_numpy(record.comparisons).to(device) if comparisons is None else comparisons,
        )
        self._advance(record)
        found = self._faults(record, saved, first)
        self._count(record, found, fresh)
        return found

    def taken_along(self, table: np.ndarray) -> np.ndarray:
        """Return which mutants have a comparison input of their own, moved as they were."""
        return any_stage(table, self.geometric) & self._moves_comparisons

    def worth_saving(self, table: np.ndarray, messages: Mapping[int, str]) -> np.ndarray:
        """Return which mutants of a wave to save: those that were kept, and the first examples of every fault."""
        worth = table["verdict"] == KEPT
        ahead: Counter[FaultKey] = Counter()
        for row in np.flatnonzero(table["fault_types"]):
            key = self.fault_key(table[row], messages.get(int(row)))
            ahead[key] += 1
            worth[row] |= self.counts.seen[key] + ahead[key] <= self._max_per_group
        return np.asarray(worth)

    def fault_key(self, candidate: Any, message: str | None) -> FaultKey:
        """Return what tells the fault of a candidate from others."""
        root = int(self.corpus.entries["root"][candidate["parent"]])
        return root, int(candidate["prediction"]), int(candidate["fault_types"]), (message or "").split(":")[0]

    def _learn(self, record: WaveRecord) -> int:
        """Note what parents and mutations brought; return how many faults were new."""
        rows = record.candidates
        run = np.flatnonzero((rows["verdict"] == KEPT) | (rows["verdict"] == NO_GAIN) | (rows["verdict"] == NO_RESULT))
        parents = rows["parent"][run]
        new = np.zeros(len(run), dtype=bool)
        for place in np.flatnonzero(rows["fault_types"][run]):
            row = int(run[place])
            key = self.fault_key(rows[row], record.messages.get(row))
            new[place] = key not in self.counts.seen
            self.counts.add_fault(key)
        entries = self.corpus.entries
        self.experience.learn(parents, entries[parents], rows["margin"][run], new, stages(rows[run]))
        np.add.at(entries["children"], parents, 1)
        self.counts.run += len(run)
        return int(new.sum())

    def _keep(self, record: WaveRecord, inputs: Tensor, comparisons: Tensor) -> None:
        if not len(record.kept):
            return
        kept = record.candidates[record.kept]
        among_saved = np.flatnonzero(record.candidates["verdict"][record.saved] == KEPT)
        moves, taken = any_stage(kept, self.geometric), self.taken_along(kept)
        self.corpus.add(kept, moves, taken, record.wave, inputs[among_saved], comparisons)

    def _advance(self, record: WaveRecord) -> None:
        """Free the lanes of parents whose mutant was kept or whose tries are used up."""
        rows = record.candidates
        lane, tries = rows["lane"], rows["tries"]
        self.counts.candidates += int((tries - self.lanes.tried(lane, rows["fresh"])).sum())
        done = (rows["verdict"] == KEPT) | (tries >= self._tries)
        if self._one_run:
            done |= rows["verdict"] != REJECTED
        self.lanes.put(lane, rows["parent"], tries, done)
        self.counts.started += int(rows["fresh"].sum())
        np.add.at(self.corpus.entries["sampled"], rows["parent"], rows["fresh"])
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
            steps=(*self.corpus.steps(parent), *steps_of(candidate)),
            message=record.messages.get(row),
            input=saved,
        )

    def _count(self, record: WaveRecord, found: list[Fault], fresh: int) -> None:
        counts, verdict = self.counts, record.candidates["verdict"]
        counts.waves = record.wave + 1
        counts.seconds = record.seconds
        acceptable = verdict != REJECTED
        finite = record.candidates["fault_types"] & 1 << NOT_FINITE == 0
        counts.acceptable += int(acceptable.sum())
        kept = len(record.kept)
        counts.add_wave(int((finite & acceptable & (verdict != NO_RESULT)).sum()), kept)
        counts.faults += len(found)
        counts.faulty_kept += int((record.candidates["fault_types"][record.kept] != 0).sum())
        counts.last_kept = record.seconds if kept else counts.last_kept
        counts.last_fault = record.seconds if fresh else counts.last_fault
        counts.reached.update(fault.after for fault in found if fault.after is not None)


def _class(number: int) -> int | None:
    return None if number < 0 else int(number)
