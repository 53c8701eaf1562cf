"""One wave of the search: candidates mutated, checked, run and judged as one batch, then admitted in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.log import EXCEPTION, INVALID, KEPT, LOST, NO_GAIN, NOT_FINITE, TIME_OUT, WaveRecord
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.checks import FaultChecker, gathered
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation
from neuralcov.fuzz.search.candidates import Candidates, draw_wave
from neuralcov.fuzz.search.runner import ModelRunner, RunResult
from neuralcov.fuzz.search.seeds import Schedule
from neuralcov.fuzz.validity import Validity


@dataclass(frozen=True)
class Rules:
    """How the search goes.

    Args:
        guidance: ``"coverage"``, or ``"random"``, the baseline: accept everything the model gives numbers for, check
            nothing.
        wave: seeds that advance together; 1 is the plain algorithm.
        tries: mutants per seed.
        rounds: mutants per seed and wave, as long as none is valid.
        batch: the most inputs per run of the model.
        seed: of all randomness.
        min_gain: what the gain of some criterion must exceed.
        time_limit: seconds the model may take for a batch.
        schedule: how seeds are chosen.
    """

    guidance: str = "coverage"
    wave: int = 256
    tries: int = 50
    rounds: int = 8
    batch: int = 1000
    seed: int = 0
    min_gain: float = 0.0
    time_limit: float | None = None
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        if self.guidance not in ("coverage", "random"):
            raise InputError(f"guidance={self.guidance!r}: expected 'coverage' or 'random'")
        for name in ("wave", "tries", "rounds", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.tries > np.iinfo(np.int16).max:
            raise InputError(f"tries={self.tries}: expected at most {np.iinfo(np.int16).max}")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed={self.seed}: expected a number from 0 to 2**63 - 1")
        if not self.min_gain >= 0:
            raise InputError(f"min_gain={self.min_gain}: expected a number of at least 0")
        if self.time_limit is not None and self.time_limit <= 0:
            raise InputError(f"time_limit={self.time_limit}: expected a number above 0")

    @property
    def random(self) -> bool:
        """Whether this is the baseline."""
        return self.guidance == "random"


@dataclass(frozen=True, eq=False)
class Search:
    """Everything a wave needs."""

    coverage: Coverage
    book: CampaignState
    runner: ModelRunner
    judge: FaultChecker
    mutations: Sequence[Mutation]
    space: InputFormat
    validity: Validity
    rules: Rules
    labels: Tensor | None

    def advance(self, limit: int | None, clock: Callable[[], float]) -> tuple[WaveRecord, list[Fault]]:
        """Search one wave further."""
        record, inputs, moved = self._try(self._draw(limit))
        record = replace(record, limit=limit, seconds=clock())
        return record, self.book.apply(record, inputs, moved)

    def repeat(self, told: WaveRecord) -> bool:
        """Go through a wave that the log tells of; whether it came out the same. If not, coverage follows the log."""
        before = None if self.rules.random else self.coverage.snapshot()
        record, inputs, moved = self._try(self._draw(told.limit))
        same = record.same_as(told)
        if same:
            self.book.apply(told, inputs, moved)
            return True
        if before is not None:
            self.coverage.restore(before)
            self._observe(told)
        self.book.apply(told)
        return False

    def _draw(self, limit: int | None) -> Candidates:
        rules = self.rules
        return draw_wave(
            self.book,
            self.mutations,
            self.space,
            None if rules.random else self.validity,
            schedule=rules.schedule,
            seed=rules.seed,
            rounds=rules.rounds,
            tries=rules.tries,
            limit=limit,
        )

    def _try(self, wave: Candidates) -> tuple[WaveRecord, Tensor, Tensor]:
        """Judge candidates; give what there is to tell, the inputs worth keeping and the moved root inputs."""
        roots = self.book.corpus.entries["root"][wave.seed].astype(np.int64)
        count, mutants = len(roots), wave.mutants
        verdict = np.full(count, INVALID, dtype=np.uint8)
        prediction = np.full(count, -1, dtype=np.int64)
        kinds = np.zeros(count, dtype=np.int32)
        valid = np.flatnonzero(wave.valid)
        ran = self.runner.run(self._rows(mutants, valid), self._labels_of(roots[valid]))
        messages = {int(valid[row]): failure.message for row, failure in ran.failures.items()}
        for row, failure in ran.failures.items():
            kinds[valid[row]] |= 1 << (TIME_OUT if failure.timed_out else EXCEPTION)
            verdict[valid[row]] = LOST
        rows = valid[ran.rows]
        taken, finite, prediction[rows] = self._admit(ran)
        verdict[rows] = np.where(taken, KEPT, NO_GAIN)
        kinds[rows] |= (~finite).astype(np.int32) << NOT_FINITE
        kept = np.flatnonzero(verdict == KEPT)
        found, said = self._faults(ran, np.flatnonzero(taken), self._rows(mutants, kept), roots[kept], prediction[kept])
        kinds[kept] |= found
        messages |= {int(kept[row]): message for row, message in said.items()}
        geometric = np.array([mutation.geometric for mutation in self.mutations])
        inputs = self._rows(mutants, np.flatnonzero((verdict == KEPT) | (kinds != 0)))
        moved = self._rows(wave.references, kept[geometric[wave.columns[kept, 0]]])
        record = WaveRecord(
            wave=self.book.tally.waves,
            slot=wave.slot,
            seed=wave.seed,
            fresh=wave.fresh,
            tries=wave.tries,
            mutation=wave.columns[:, 0],
            setting=wave.columns[:, 1],
            place=wave.columns[:, 2],
            size=wave.columns[:, 3],
            verdict=verdict,
            prediction=prediction,
            kinds=kinds,
            inputs=inputs.cpu().numpy(),
            references=moved.cpu().numpy(),
            messages=messages,
        )
        return record, inputs, moved

    def _admit(self, ran: RunResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What was taken, what is finite and the predicted classes, brought to the host together."""
        if ran.activations is None:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing.astype(bool), nothing.astype(bool), nothing
        if self.rules.random:
            taken = ran.finite
        else:
            rules = self.rules
            taken = self.coverage.admit(activations=ran.activations, min_gain=rules.min_gain)
        classes = ran.predictions
        if classes is None:
            classes = torch.full(taken.shape, -1, dtype=torch.int64, device=taken.device)
        numbers = torch.stack([taken.long(), ran.finite.long(), classes.long().to(taken.device)]).cpu().numpy()
        return numbers[0].astype(bool), numbers[1].astype(bool), numbers[2]

    def _faults(
        self, ran: RunResult, taken: np.ndarray, mutants: Tensor, roots: np.ndarray, predictions: np.ndarray
    ) -> tuple[np.ndarray, dict[int, str]]:
        output = gathered(ran, ran.rows[taken]) if self.runner.keep_outputs and len(taken) else None
        origins = self.book.corpus.inputs(roots) if self.runner.keep_outputs else mutants
        return self.judge.judge(mutants, roots, origins, predictions, output)

    def _observe(self, told: WaveRecord) -> None:
        """Have coverage take what the log says was kept, one by one."""
        places = np.flatnonzero(told.verdict[told.saved] == KEPT)
        inputs = torch.from_numpy(np.array(told.inputs[places])).to(self.book.corpus.inputs(slice(0, 1)).device)
        roots = self.book.corpus.entries["root"][told.seed[told.kept]].astype(np.int64)
        ran = self.runner.run(inputs, self._labels_of(roots))
        if ran.activations is not None:
            self.coverage.propose(activations=ran.activations).commit()

    def _labels_of(self, roots: np.ndarray) -> Tensor | None:
        return None if self.labels is None else self._rows(self.labels, roots)

    @staticmethod
    def _rows(tensor: Tensor, rows: np.ndarray) -> Tensor:
        return tensor[torch.from_numpy(rows).to(tensor.device, non_blocking=True)]


def examine(engine: Search, inputs: Tensor, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[int, Any]]:
    """Stored inputs judged on their own, coverage left alone: kinds of fault as bits, predicted classes, messages."""
    ran = engine.runner.run(inputs, engine._labels_of(roots))
    kinds = np.zeros(len(inputs), dtype=np.int32)
    prediction = np.full(len(inputs), -1, dtype=np.int64)
    messages: dict[int, str] = {row: failure.message for row, failure in ran.failures.items()}
    for row, failure in ran.failures.items():
        kinds[row] |= 1 << (TIME_OUT if failure.timed_out else EXCEPTION)
    if ran.activations is None:
        return kinds, prediction, messages
    if ran.predictions is not None:
        prediction[ran.rows] = ran.predictions.cpu().numpy()
    kinds[ran.rows] |= (~ran.finite.cpu().numpy()).astype(np.int32) << NOT_FINITE
    everyone = np.arange(len(ran.rows))
    found, said = engine._faults(ran, everyone, engine._rows(inputs, ran.rows), roots[ran.rows], prediction[ran.rows])
    kinds[ran.rows] |= found
    messages |= {int(ran.rows[row]): message for row, message in said.items()}
    return kinds, prediction, messages
