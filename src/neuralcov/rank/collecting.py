"""One pass over the data: what the model's outputs and the scorers say of every input."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.provenance import model_id
from neuralcov.coverage.running import Run
from neuralcov.rank.columns import Columns, KeySum, Names, WorkFile, require_inputs
from neuralcov.rank.given import OutputListener
from neuralcov.rank.scorers import KINDS, MOST_TRACES, RARITY, TRUST, ScorerPlan, Scorers, as_column, teach_by
from neuralcov.rank.scores import Confidence, confidence
from neuralcov.tap.inputs import Lengths

CONFIDENCE = ("margin", "gini", "entropy")
ALL_SCORES = ("gini", "margin", "entropy", TRUST, "dsc", "lsc", "mdsc", RARITY)
# What ranks without labels, and how much each rank counts: doubt of the model, and doubt of the training data. Of the
# weights tried (the lab's `select`), these find faults soonest among those that are never far behind DeepGini.
USUAL: Mapping[str, float] = {"gini": 2.5, TRUST: 1.0}
# The same for models without classes, such as language models before they answer: by hidden states alone.
SCORES_OF_STATES = ("lsc", "mdsc", RARITY)
USUAL_OF_STATES: Mapping[str, float] = {"mdsc": 1.0, RARITY: 1.0}
# All but these grow with suspicion.
SMALLEST_FIRST = frozenset({"margin", TRUST})
# A part of the work file is written after so many inputs or seconds.
_PART_INPUTS = 4096
_PART_SECONDS = 10.0


@dataclass(frozen=True)
class Settings:
    """Say what to gather of every input, and how.

    Args:
        every_score: all of ``ALL_SCORES``, for weights to be learnt; otherwise what ranks without labels.
        kinds: whether to gather keys of the kinds, which tell near duplicates.
        states: take the model for one without classes, whatever form its output has.
        training: training data, in place of the coverage's calibration.
        layer: where surprise is measured; by default the last layer before the output.
        traces: how many training inputs it is measured against at most.
        lengths: as for ``assess``, of data and training data.
        work: a file to keep what was gathered, and to go on from.
        progress: show a bar; by default only in a terminal.
    """

    every_score: bool = False
    kinds: bool = False
    states: bool = False
    training: Iterable[Any] | None = None
    layer: str | None = None
    traces: int = MOST_TRACES
    lengths: Lengths | None = None
    work: str | os.PathLike[str] | None = None
    progress: bool | None = None


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is known of every input.

    Args:
        scores: the names of the scores that rank, in order.
        columns: numbers by column: the scores, ``first`` and ``second`` for classes, ``kinds`` for all kinds together.
            Scores of inputs whose output is NaN or infinite are infinite, and put them first.
        names: of the inputs.
        scorers: what scored them.
        notes: what a person should know.
    """

    scores: tuple[str, ...]
    columns: dict[str, np.ndarray]
    names: Names
    scorers: Scorers
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of inputs."""
        return self.names.count

    def broken(self) -> np.ndarray:
        """Tell which inputs the model gave NaN or infinity for."""
        margin = self.columns.get("margin")
        return np.zeros(self.count, dtype=bool) if margin is None else np.isneginf(margin)


@dataclass(eq=False)
class _Collector:
    """Gather numbers batch by batch."""

    coverage: Coverage
    settings: Settings
    scores: tuple[str, ...] = ()
    scorers: Scorers | None = None
    columns: Columns = field(default_factory=lambda: Columns({}))
    names: Names = field(default_factory=Names)
    work: WorkFile | None = None
    done: int = 0
    probabilities: int = 0
    listener: OutputListener = field(default_factory=lambda: OutputListener(None))

    def choose(self, batch: Activations, output: Any) -> ScorerPlan:
        """Settle what to gather, given any batch of the model."""
        settings = self.settings
        classes = self.classes(batch)
        sure = None if settings.states else confidence(output, batch.size)
        self.scores = _chosen(sure, classes=classes, every=settings.every_score)
        names = (*(name for name in self.scores if name not in CONFIDENCE), *((KINDS,) if settings.kinds else ()))
        return ScorerPlan(names, classes, settings.layer, settings.traces)

    def classes(self, batch: Activations) -> bool:
        """Tell whether the model decides between classes, as far as that may be looked at."""
        return batch.predictions is not None and not self.settings.states

    def told(self, run: Run) -> Run:
        """Return a run without what the model gave, where hidden states alone are to rank."""
        if not self.settings.states or run.activations is None:
            return run
        batch = run.activations
        if self.settings.training is not None:
            # A calibration of the coverage counts kinds with their decisions; training data are learnt from without.
            batch = replace(batch, predictions=None)
        return replace(run, activations=batch, output=None)

    def learn(self) -> None:
        """Teach the scorers by training data, where there are some."""
        settings = self.settings
        if settings.layer is None and not settings.states:
            self.listener = OutputListener(self.coverage.model)
        if settings.training is None:
            return
        self.scorers = teach_by(
            self.coverage,
            settings.training,
            self.choose,
            self.listener,
            told=self.told,
            lengths=settings.lengths,
            progress=settings.progress,
        )

    def begin(self, run: Run) -> int:
        """Make ready, given the first batch; return how many inputs are known from an earlier run."""
        run = self.told(run)
        batch, settings = _activations(run), self.settings
        sure = confidence(run.output, batch.size)
        if self.scorers is None:
            self.scorers = self.choose(batch, run.output).teach(self.coverage, batch, run.output)
        # What ranks without labels keeps its last digits; of all others memory matters more.
        exact = () if settings.every_score else tuple(USUAL) if set(USUAL) <= set(self.scores) else self.scores
        kinds = {name: "f8" if name in exact else "f4" for name in self.scores}
        kinds |= {"first": "i4"} if self.classes(batch) else {}
        kinds |= {} if sure is None else {"second": "i4"}
        kinds |= {"kinds": "i8"} if settings.kinds else {}
        self.columns = Columns(kinds)
        if settings.work is not None:
            model = self.coverage.model
            subject = {"model": None if model is None else model_id(model), **self.scorers.identity()}
            self.work = WorkFile(settings.work, subject, kinds)
            self.done = self.work.load(self.columns)
        return self.done

    def heard(self, run: Run) -> Activations:
        """Return the activations of a batch, with what the output layer was given where the scorers know that."""
        batch = self.listener.joined(run)
        return batch if self.settings.training is not None else _activations(run)

    def numbers(self, run: Run) -> dict[str, np.ndarray]:
        """Return what is gathered of the inputs of a batch."""
        assert self.scorers is not None
        batch = self.heard(run)
        sure = confidence(run.output, batch.size)
        numbers = [
            getattr(sure, name) if name in CONFIDENCE else self.scorers.score(name, batch) for name in self.scores
        ]
        # Fetched in one piece: each time, the device is waited for.
        table = torch.stack([column.to(batch.device, torch.float64) for column in numbers]).cpu().numpy()
        found = {name: column.astype(self.columns.kinds[name]) for name, column in zip(self.scores, table, strict=True)}
        if sure is not None and "margin" in found:
            broken = np.isnan(found["margin"])
            for name in self.scores:
                found[name][broken] = -np.inf if name in SMALLEST_FIRST else np.inf
        decided = batch.predictions if self.classes(batch) else None
        if decided is not None:
            found["first"] = as_column(decided, "i4")
        if sure is not None:
            found["second"] = as_column(_runner_up(sure, batch), "i4")
            self.probabilities += int(sure.were_probabilities.sum())
        if self.settings.kinds:
            found["kinds"] = as_column(self.scorers.kinds(batch), "i8")
        return found


def gather(coverage: Coverage, data: Iterable[Any], settings: Settings) -> Gathered:
    """Run the model on all data once and return what is known of every input; the coverage observes nothing."""
    collector = _Collector(coverage, settings)
    collector.learn()
    sums: KeySum | None = None
    pending: list[Mapping[str, np.ndarray]] = []
    written, since = 0, time.monotonic()
    runs = coverage.runs(
        data, lengths=settings.lengths, progress=settings.progress, title="ranking", known=collector.begin
    )
    with collector.listener.listening():
        for run in map(collector.told, runs):
            sums = KeySum(collector.work) if sums is None else sums
            before = collector.names.count
            collector.names.add(run)
            sums.add(run.keys, run.size, collector.done)
            if run.activations is None or collector.names.count <= collector.done:
                continue
            rows = {name: values[max(0, collector.done - before) :] for name, values in collector.numbers(run).items()}
            collector.columns.add(rows)
            if collector.work is None:
                continue
            pending.append(rows)
            waiting = collector.columns.count - max(written, collector.done)
            if waiting >= _PART_INPUTS or time.monotonic() - since > _PART_SECONDS:
                collector.work.add(_joined(pending), collector.columns.count, sums.value)
                pending, written, since = [], collector.columns.count, time.monotonic()
    require_inputs(collector.names.count)
    if collector.names.count < collector.done:
        raise InputError(
            f"{settings.work}: the run there has {counted(collector.done, 'input')}, and the data gave "
            f"{collector.names.count}: "
            "give the same data, or another name"
        )
    if collector.work is not None and pending and sums is not None:
        collector.work.add(_joined(pending), collector.columns.count, sums.value)
    assert collector.scorers is not None
    return Gathered(collector.scores, collector.columns.joined(), collector.names, collector.scorers, _notes(collector))


def _chosen(sure: Confidence | None, *, classes: bool, every: bool) -> tuple[str, ...]:
    """Return the scores to rank by, as far as the model has classes."""
    if every:
        return ALL_SCORES if sure is not None and classes else SCORES_OF_STATES
    if sure is not None and classes:
        # The margin finds inputs without numbers, and says which class is near.
        return ("margin", *USUAL)
    return ("dsc" if classes else "mdsc", RARITY)


def _runner_up(sure: Confidence, batch: Activations) -> Any:
    """Return the most probable class that is not the predicted one."""
    assert batch.predictions is not None
    first = sure.first.to(batch.predictions.device)
    second = sure.second.to(batch.predictions.device)
    return second.where(first == batch.predictions, first)


def _activations(run: Run) -> Activations:
    assert run.activations is not None
    return run.activations


def _joined(parts: list[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _notes(collector: _Collector) -> tuple[str, ...]:
    notes = []
    if collector.probabilities:
        notes.append("the outputs sum to 1: they were read as probabilities, without a softmax")
    if collector.listener.found and collector.settings.training is None and collector.scorers is not None:
        notes.append(
            f"a calibration knows layers, so {collector.scorers.layer!r} was looked at: on what the output layer is "
            "given, doubts are found better; for that give training data (training=, --calibrate DATA)"
        )
    return tuple(notes)
