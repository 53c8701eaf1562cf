"""The state of a campaign without its model: queue, seeds under way, tallies and faults, as the log tells them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.corpus import AppliedMutation, Corpus
from neuralcov.fuzz.campaign.log import INVALID, KEPT, LOST, NOT_FINITE, WaveRecord
from neuralcov.fuzz.faults.fault import Fault

_NOBODY = -1


@dataclass
class CampaignCounts:
    """What a campaign has done so far."""

    waves: int = 0
    started: int = 0
    finished: int = 0
    candidates: int = 0
    valid: int = 0
    judged: int = 0
    kept: int = 0
    faults: int = 0
    last_kept: float = 0.0
    last_fault: float = 0.0
    seconds: float = 0.0
    reached: Counter[int] = field(default_factory=Counter)

    @property
    def admitted(self) -> float:
        """Share of the judged candidates that were kept."""
        return self.kept / self.judged if self.judged else 0.0


class CampaignState:
    """What the log adds up to. Applying the same records gives the same book.

    Args:
        roots: the root inputs, on the device the queue is to be on.
        labels: the class each should have, −1 where unknown.
        predictions: the class the model gives each, −1 where it gives none.
        usable: which root inputs may serve as seeds.
        moves: of every mutation, whether it is geometric.
        kinds: the names of what can be wrong, a bit each.
        tries: mutants per seed.
        wave: seeds that advance together.
    """

    def __init__(
        self,
        roots: Tensor,
        labels: np.ndarray,
        predictions: np.ndarray,
        usable: np.ndarray,
        *,
        moves: np.ndarray,
        kinds: Sequence[str],
        tries: int,
        wave: int,
    ) -> None:
        self.corpus = Corpus(roots, predictions)
        self.labels = labels
        self.faults: list[Fault] = []
        self.tally = CampaignCounts()
        self.seeds = np.full(wave, _NOBODY, dtype=np.int32)
        self.tried = np.zeros(wave, dtype=np.int16)
        self._usable = usable
        self._moves = moves
        self._kinds = tuple(kinds)
        self._tries = tries
        self._device = roots.device

    @property
    def usable(self) -> np.ndarray:
        """Which entries may serve as seeds: those the model copes with and some mutation may still be applied to."""
        entries = self.corpus.entries
        able = np.ones(len(entries), dtype=bool)
        able[: self.corpus.roots] = self._usable
        if self._moves.all():
            able &= ~entries["moved"]
        return able

    @property
    def idle(self) -> bool:
        """Whether no seed is under way."""
        return bool((self.seeds == _NOBODY).all())

    def apply(self, record: WaveRecord, inputs: Tensor | None = None, references: Tensor | None = None) -> list[Fault]:
        """Take in a wave; give the faults it found. ``inputs`` and ``references`` may be at hand on the device."""
        saved = torch.from_numpy(record.inputs)
        first = len(self.corpus)
        self._queue(
            record,
            saved.to(self._device) if inputs is None else inputs,
            torch.from_numpy(record.references).to(self._device) if references is None else references,
        )
        self._advance(record)
        found = self._findings(record, saved, first)
        self._count(record, found)
        return found

    def _queue(self, record: WaveRecord, inputs: Tensor, references: Tensor) -> None:
        kept = record.kept
        if not len(kept):
            return
        table = {name: getattr(record, name)[kept] for name in ("prediction", "mutation", "setting", "place", "size")}
        table |= {"parent": record.seed[kept], "wave": np.full(len(kept), record.wave)}
        table["moves"] = self._moves[record.mutation[kept]]
        self.corpus.add(inputs[np.flatnonzero(record.verdict[record.saved] == KEPT)], references, table)
        np.add.at(self.corpus.entries["picks"], record.seed[kept], 1)

    def _advance(self, record: WaveRecord) -> None:
        """Seeds whose mutant was kept, or whose tries are used up, give way."""
        before = np.where(record.fresh.astype(bool), 0, self.tried[record.slot])
        self.tally.candidates += int((record.tries - before).sum())
        self.seeds[record.slot], self.tried[record.slot] = record.seed, record.tries
        done = (record.verdict == KEPT) | (record.tries >= self._tries)
        self.seeds[record.slot[done]] = _NOBODY
        self.tally.started += int(record.fresh.sum())
        self.tally.finished += int(done.sum())

    def _findings(self, record: WaveRecord, inputs: Tensor, first: int) -> list[Fault]:
        entry_of = {int(row): first + place for place, row in enumerate(record.kept)}
        found = [
            self._fault(record, int(row), inputs[place], entry_of.get(int(row)), len(self.faults) + number)
            for number, (place, row) in enumerate(
                (place, row) for place, row in enumerate(record.saved) if record.kinds[row]
            )
        ]
        self.faults.extend(found)
        return found

    def _fault(self, record: WaveRecord, row: int, saved: Tensor, entry: int | None, number: int) -> Fault:
        seed = int(record.seed[row])
        root = int(self.corpus.entries["root"][seed])
        last = AppliedMutation(*(int(getattr(record, name)[row]) for name in ("mutation", "setting", "place", "size")))
        return Fault(
            number=number,
            kinds=tuple(name for bit, name in enumerate(self._kinds) if record.kinds[row] >> bit & 1),
            wave=record.wave,
            row=row,
            root=root,
            entry=entry,
            label=_class(self.labels[root]),
            before=_class(self.corpus.entries["prediction"][root]),
            after=_class(record.prediction[row]),
            steps=(*self.corpus.steps(seed), last),
            message=record.messages.get(row),
            input=saved,
        )

    def _count(self, record: WaveRecord, found: list[Fault]) -> None:
        tally = self.tally
        tally.waves = record.wave + 1
        tally.seconds = record.seconds
        tally.valid += int((record.verdict != INVALID).sum())
        finite = record.kinds & 1 << NOT_FINITE == 0
        tally.judged += int((finite & (record.verdict != INVALID) & (record.verdict != LOST)).sum())
        kept = len(record.kept)
        tally.kept += kept
        tally.faults += len(found)
        tally.last_kept = record.seconds if kept else tally.last_kept
        tally.last_fault = record.seconds if found else tally.last_fault
        tally.reached.update(fault.after for fault in found if fault.after is not None)


def _class(number: int) -> int | None:
    return None if number < 0 else int(number)
