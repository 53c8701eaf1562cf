"""One wave of the search: candidates mutated, checked, run and judged as one batch, then admitted in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.log import (
    EXCEPTION,
    KEPT,
    NO_GAIN,
    NO_RESULT,
    NOT_FINITE,
    TIME_OUT,
    WaveRecord,
)
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.checks import FaultChecker
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation
from neuralcov.fuzz.search.candidates import Candidates, draw_wave
from neuralcov.fuzz.search.guides import Guide, Judged, guide_of
from neuralcov.fuzz.search.runner import Failure, ModelRunner, RunResult
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.fuzz.validity import Validity


@dataclass(frozen=True, eq=False)
class JudgedWave:
    """Hold a wave that was run and judged, and not yet applied.

    Args:
        record: what it did.
        inputs: the mutants worth saving, on the device.
        moved: the moved root inputs of what was kept, on the device.
        admitted: the rows that coverage admitted.
        rows: the rows that the model gave something for.
        batch: what its layers gave for them; ``None`` where coverage takes no part.
    """

    record: WaveRecord
    inputs: Tensor
    moved: Tensor
    admitted: np.ndarray
    rows: np.ndarray
    batch: Activations | None


@dataclass(frozen=True, eq=False)
class Search:
    """Search wave by wave.

    A wave holds one candidate per parent under way. All of them are mutated, run and judged as one batch; coverage
    admits them in order, each judged on the state that those before it left. So a wave of W equals W single steps,
    but for one thing: a mutant kept in this wave can be sampled in the next wave at the earliest.

    Args:
        coverage: guides.
        state: what the campaign has found so far.
        runner: runs the model.
        checker: tells which mutants are faults.
        mutations: the ways to change inputs.
        input_format: how inputs are stored.
        validity: tells which mutants are acceptable.
        settings: how to search.
        labels: the classes of the root inputs, where the user gave them.
    """

    coverage: Coverage
    state: CampaignState
    runner: ModelRunner
    checker: FaultChecker
    mutations: Sequence[Mutation]
    input_format: InputFormat
    validity: Validity
    settings: FuzzSettings
    labels: Tensor | None

    @property
    def guide(self) -> Guide:
        """Return what chooses parents and says which mutants are kept."""
        return guide_of(self.settings)

    def advance(self, limit: int | None, clock: Callable[[], float]) -> tuple[WaveRecord, list[Fault]]:
        """Search one wave further; return what it did and the faults it found."""
        found = self.judge(self.draw(limit))
        record = replace(found.record, limit=limit, seconds=clock())
        return record, self.state.apply(record, found.inputs, found.moved)

    def repeat(self, logged: WaveRecord) -> bool:
        """Repeat a logged wave; return whether it gave the same. If not, make coverage follow the log.

        A wave that was drawn before others were known, where many search, is not repeated.
        """
        if logged.follows_others:
            self._observe(logged)
            self.state.apply(logged)
            return True
        before = self.coverage.snapshot() if self.settings.uses_coverage else None
        found = self.judge(self.draw(logged.limit, self.state.lanes.track_of(logged.candidates["lane"])))
        if found.record.same_as(logged):
            self.state.apply(logged, found.inputs, found.moved)
            return True
        if before is not None:
            self.coverage.restore(before)
            self._observe(logged)
        self.state.apply(logged)
        return False

    def draw(self, limit: int | None, track: int | None = None) -> Candidates:
        """Draw the candidates of the next wave; the same again until the state changes.

        Args:
            limit: how many parents may be sampled in all.
            track: whose parents advance; by default each track has its turn, of those that have something to do.
        """
        settings, state = self.settings, self.state
        if track is None:
            turn = state.counts.waves % state.lanes.tracks
            full = limit is not None and state.counts.started >= limit
            track = (state.lanes.first_busy(turn) or 0) if full else turn
        validity = self.validity if settings.checks_validity else None
        return draw_wave(self.state, self.mutations, self.input_format, validity, settings, self.guide, limit, track)

    def examine(self, inputs: Tensor, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look for faults in stored inputs, coverage left alone; return fault types as bits and predicted classes.

        Args:
            inputs: as they are stored, on the device.
            roots: the number of each one's root input.
        """
        result = self.runner.run(inputs, self._labels_of(roots))
        fault_types = np.zeros(len(inputs), dtype=np.int32)
        predictions = np.full(len(inputs), -1, dtype=np.int64)
        for row, failure in result.failures.items():
            fault_types[row] |= _bit_of(failure)
        if result.activations is None:
            return fault_types, predictions
        rows = result.rows
        if result.predictions is not None:
            predictions[rows] = result.predictions.cpu().numpy()
        fault_types[rows] |= (~result.finite.cpu().numpy()).astype(np.int32) << NOT_FINITE
        found, _ = self._check(result, np.arange(len(rows)), _rows(inputs, rows), roots[rows], predictions[rows])
        fault_types[rows] |= found
        return fault_types, predictions

    def judge(self, wave: Candidates) -> JudgedWave:
        """Run, check and admit candidates; apply nothing.

        Every mutant that was run is checked for faults, whether or not it is kept.
        """
        table, mutants = wave.table, wave.mutants
        roots = self.state.corpus.entries["root"][table["parent"]].astype(np.int64)
        acceptable = np.flatnonzero(wave.acceptable)
        result = self.runner.run(
            _rows(mutants, acceptable), self._labels_of(roots[acceptable]), self._targets_of(roots[acceptable])
        )
        messages = {int(acceptable[row]): failure.message for row, failure in result.failures.items()}
        for row, failure in result.failures.items():
            table["fault_types"][acceptable[row]] |= _bit_of(failure)
            table["verdict"][acceptable[row]] = NO_RESULT
        rows = acceptable[result.rows]
        told = self._read(result)
        finite = told["finite"].astype(bool)
        table["prediction"][rows] = told["prediction"]
        if "margin" in told:
            table["margin"][rows], table["rival"][rows] = told["margin"], told["rival"]
        table["fault_types"][rows] |= (~finite).astype(np.int32) << NOT_FINITE
        # What has no finite numbers is a fault as it is; nothing else can be said of it.
        sound = np.flatnonzero(finite)
        found, said = self._check(
            result, sound, _rows(mutants, rows[sound]), roots[rows[sound]], table["prediction"][rows[sound]]
        )
        table["fault_types"][rows[sound]] |= found
        messages |= {int(rows[sound[row]]): message for row, message in said.items()}
        admitted = told["admitted"].astype(bool)
        self._decide(table, rows, admitted, messages)
        kept = np.flatnonzero(table["verdict"] == KEPT)
        moved = _rows(wave.comparisons, kept[self.state.taken_along(table[kept])])
        inputs = _rows(mutants, np.flatnonzero(table["saved"]))
        record = WaveRecord(self.state.counts.waves, table, inputs.cpu().numpy(), moved.cpu().numpy(), messages)
        batch = result.activations if self.settings.uses_coverage else None
        return JudgedWave(record, inputs, moved, rows[admitted], rows, batch)

    def _decide(self, table: np.ndarray, rows: np.ndarray, admitted: np.ndarray, messages: Mapping[int, str]) -> None:
        """Write into a table which mutants are kept, of those that were run, and which are saved."""
        types = table["fault_types"][rows]
        judged = Judged(
            parents=table["parent"][rows],
            finite=types >> NOT_FINITE & 1 == 0,
            faulty=types != 0,
            admitted=admitted,
            margin=table["margin"][rows],
            rival=table["rival"][rows],
        )
        table["verdict"][rows] = np.where(self.guide.keep(self.state, judged), KEPT, NO_GAIN)
        table["saved"] = self.state.worth_saving(table, messages)

    def decide_again(self, told: WaveRecord, admitted: np.ndarray) -> np.ndarray:
        """Return the candidates of a wave that was judged on an earlier state, as they are judged on this one.

        Of those that were not kept or saved there, the mutants are not at hand: they are not kept or saved here.

        Args:
            told: the wave as it was judged.
            admitted: which of its candidates coverage admits now.
        """
        table, before = told.candidates.copy(), told.candidates
        rows = np.flatnonzero((before["verdict"] == KEPT) | (before["verdict"] == NO_GAIN))
        self._decide(table, rows, admitted[rows], told.messages)
        table["verdict"][(table["verdict"] == KEPT) & (before["verdict"] != KEPT)] = NO_GAIN
        table["saved"] = self.state.worth_saving(table, told.messages) & (before["saved"] != 0)
        return table

    def _read(self, result: RunResult) -> dict[str, np.ndarray]:
        """Return what coverage admitted, what is finite, predicted classes and margins, brought to the host together.

        They travel as float64, which holds every class number exactly.
        """
        if result.activations is None:
            return {name: np.zeros(0) for name in ("admitted", "finite", "prediction")}
        columns = {"finite": result.finite}
        if self.settings.uses_coverage:
            columns["admitted"] = self.coverage.admit(activations=result.activations, min_gain=self.settings.min_gain)
        else:
            columns["admitted"] = torch.zeros_like(result.finite)
        classes = result.predictions
        columns["prediction"] = torch.full_like(result.finite, -1, dtype=torch.int64) if classes is None else classes
        if result.margins is not None:
            columns["margin"], columns["rival"] = result.margins
        device = result.finite.device
        numbers = torch.stack([column.double().to(device) for column in columns.values()]).cpu().numpy()
        return dict(zip(columns, numbers, strict=True))

    def _check(
        self, result: RunResult, places: np.ndarray, mutants: Tensor, roots: np.ndarray, predictions: np.ndarray
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Return fault types as bits, and messages, of mutants that stand at these places of a result."""
        wanted = self.runner.keep_outputs
        output = result.outputs_of(result.rows[places]) if wanted and len(places) else None
        origins = self.state.corpus.inputs(roots) if wanted else mutants
        return self.checker.check(mutants, roots, origins, predictions, output)

    def _observe(self, logged: WaveRecord) -> None:
        """Have coverage observe what the log says it observed, one by one."""
        if not self.settings.uses_coverage:
            return
        rows, stored = logged.observed_inputs()
        corpus = self.state.corpus
        roots = corpus.entries["root"][logged.candidates["parent"][rows]].astype(np.int64)
        result = self.runner.run(torch.from_numpy(stored).to(corpus.device), self._labels_of(roots))
        if result.activations is not None:
            self.coverage.propose(activations=result.activations).commit()

    def _labels_of(self, roots: np.ndarray) -> Tensor | None:
        return None if self.labels is None else _rows(self.labels, roots)

    def _targets_of(self, roots: np.ndarray) -> Tensor | None:
        """Return the classes whose margins the guide wants to know."""
        if not self.settings.uses_margin:
            return None
        return torch.from_numpy(self.state.labels[roots].astype(np.int64)).to(self.state.corpus.device)


def _bit_of(failure: Failure) -> int:
    return 1 << (TIME_OUT if failure.timed_out else EXCEPTION)


def _rows(tensor: Tensor, rows: np.ndarray) -> Tensor:
    return tensor[torch.from_numpy(rows).to(tensor.device, non_blocking=True)]
