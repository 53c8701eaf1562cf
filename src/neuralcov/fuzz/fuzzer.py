"""Fuzzer: what a user holds. Searches for inputs the model gets wrong, and can be stopped and resumed at any time."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.errors import CampaignError
from neuralcov.core.records import fingerprint
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.configuration import (
    checked_inputs,
    checked_labels,
    checked_mutations,
    describe_machine,
    describe_rules,
    describe_weights,
    require_same,
    require_weights,
)
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.log import WaveRecord
from neuralcov.fuzz.campaign.result import Campaign, Stats, StatsReader, read_values
from neuralcov.fuzz.campaign.screen import ProgressView, screen_for
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.campaign.writer import Writer
from neuralcov.fuzz.faults.checks import Check, FaultChecker, SecondModel, named_checks
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.faults.replay import Replay, Shrunk, replay, shrink
from neuralcov.fuzz.formats import format_of
from neuralcov.fuzz.mutations import Mutation
from neuralcov.fuzz.search.runner import ModelRunner
from neuralcov.fuzz.search.seeds import Schedule, SeedReport, survey
from neuralcov.fuzz.search.wave import Rules, Search
from neuralcov.fuzz.settings import Limits, Timer
from neuralcov.fuzz.validity import Validity, usual_rule


class Fuzzer:
    """Coverage-guided search for inputs that a model gets wrong.

    First coverage observes the seeds. Then, again and again: a seed is sampled and mutated up to ``tries`` times; the
    first mutant that is valid and raises coverage is kept and becomes a seed itself. ``wave`` seeds advance together,
    each with one candidate at a time: the candidates are mutated, run and judged as one batch, and admitted in order,
    each judged on the coverage it meets. With ``wave=1`` this is the algorithm of the NLC paper (Yuan, Pang and Wang,
    2023), with two changes after DeepHunter (Xie et al., 2019): a mutant is compared with its root input moved by
    the lineage's geometric mutation, and a lineage holds at most one.

    A kept mutant is a fault if the model was right on the root input and is not on the mutant.

    Args:
        coverage: holds the model and the criteria that guide; a mutant is kept if any of them gains.
        inputs: the seeds: images as bytes or floats in [0, 1], or tokens ``(inputs, length)``.
        labels: their classes; by default what the model predicts for them.
        mutations: by default :func:`image_mutations` or :func:`text_mutations` for inputs of that form.
        preprocess: from pixels in [0, 1], or tokens, to what the model takes.
        folder: where the campaign is kept; without one it is kept in memory only.
        guidance: ``"coverage"``, or ``"random"``, the baseline that accepts everything and checks nothing.
        wave: how many seeds advance together; 64 to 256 suit a CPU, 1,000 to 4,000 a GPU.
        tries: how often a seed is mutated before it is given up.
        rounds: how often within one wave, as long as its mutants are not valid.
        batch: the most inputs the model is run on at once; the seeds are observed in such batches too.
        seed: of all randomness, together with the number of the wave.
        min_gain: what a gain must exceed.
        schedule: ``"uniform"``, or ``"fresh"`` for DeepHunter's choice of seeds, or a :class:`Schedule`.
        alpha: a mutant is valid if fewer than this share of its positions changed,
        beta: or if its largest change is below this share of the range. For text only ``alpha`` counts, of words.
        validity: another rule, ``(mutants, references) -> (batch,) booleans`` over inputs as they are stored.
        levels: the byte that stands for 1.0.
        padding: the token behind a text's end.
        words: the vocabulary, a word per token, to show texts with.
        checks: faults of the user's own, see :class:`MutantBatch`.
        against: a second model that should agree, see :class:`SecondModel`.
        time_limit: seconds the model may take for a batch before that is a finding.
        checkpoint: seconds between saves of the coverage state.
        pictures: how many faults of a group get files of their own; ``None`` for all.
        notes: plain data kept in the configuration, for whoever started the campaign.

    Example:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> seeds = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> campaign = nc.Fuzzer(nc.Coverage(model, [nc.NLC()]), seeds).run(iterations=30)
        >>> campaign.iterations, campaign.outputs == len(campaign.inputs)
        (30, True)
    """

    def __init__(
        self,
        coverage: Coverage,
        inputs: Any,
        labels: Any = None,
        *,
        mutations: Sequence[Mutation] | None = None,
        preprocess: Callable[[Tensor], Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        guidance: str = "coverage",
        wave: int = 256,
        tries: int = 50,
        rounds: int = 8,
        batch: int = 1000,
        seed: int = 0,
        min_gain: float = 0.0,
        schedule: str | Schedule = "uniform",
        alpha: float = 0.2,
        beta: float = 0.4,
        validity: Validity | None = None,
        levels: int = 255,
        padding: int = 0,
        words: Sequence[str] | None = None,
        checks: Check | Sequence[Check] | Mapping[str, Check] = (),
        against: nn.Module | SecondModel | None = None,
        time_limit: float | None = None,
        checkpoint: float = 60.0,
        pictures: int | None = 20,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        roots = checked_inputs(inputs)
        self.coverage = coverage
        self.rules = Rules(
            guidance=guidance,
            wave=wave,
            tries=tries,
            rounds=rounds,
            batch=batch,
            seed=seed,
            min_gain=min_gain,
            time_limit=time_limit,
            schedule=schedule if isinstance(schedule, Schedule) else Schedule(schedule),
        )
        self.space = format_of(roots, levels=levels, padding=padding, words=words)
        self.mutations = checked_mutations(mutations, roots, self.space)
        self.folder = None if folder is None else CampaignFolder(folder)
        self._roots = roots.to(coverage.device)
        self._labels = checked_labels(labels, len(roots), coverage.device)
        self._validity = validity or usual_rule(self.space, alpha, beta)
        self._preprocess = preprocess or (lambda opened: opened)
        self._checks = named_checks(checks)
        self._rival = against if isinstance(against, SecondModel) or against is None else SecondModel(against.eval())
        self.pictures = pictures
        self._checkpoint = checkpoint
        self._notes = dict(notes or {})
        self._engine: Search | None = None
        self._survey: SeedReport | None = None
        self._meter: StatsReader | None = None
        self._whole = True
        self._exact = True
        self._only_read = False

    # What a user does

    def run(
        self,
        iterations: int | None = None,
        *,
        seconds: float | None = None,
        faults: int | None = None,
        progress: bool | None = None,
    ) -> Campaign:
        """Search until a limit is reached; limits count from the start of the campaign.

        Args:
            iterations: how many seeds to sample.
            seconds: for how long.
            faults: until so many faults are found.
            progress: show a live screen, or lines where there is no terminal; by default only in a terminal.
        """
        limits = Limits(iterations, seconds, faults)
        if self._only_read:
            raise CampaignError("the campaign was only read, so coverage has not seen what it found: call resume()")
        if self._engine is None and self.folder is not None:
            self.folder.require_new()
        return self._within(limits, progress, self._begin)

    def resume(
        self,
        iterations: int | None = None,
        *,
        seconds: float | None = None,
        faults: int | None = None,
        progress: bool | None = None,
    ) -> Campaign:
        """Go on with the campaign in the folder, up to the limits it was given at first or to new ones.

        The coverage and everything else must be as at the start; the coverage's state comes from the folder.
        """
        if self.folder is None:
            raise CampaignError("there is nothing to resume: the campaign has no folder=")
        if iterations is None and seconds is None and faults is None:
            limits = Limits(**self.folder.config()["limits"])
        else:
            limits = Limits(iterations, seconds, faults)
        return self._within(limits, progress, self._return)

    def load(self) -> list[Fault]:
        """Read the campaign in the folder without going on with it; give its faults."""
        if self._engine is None:
            self._read_folder()
        assert self._engine is not None
        return self._engine.book.faults

    def replay(self, faults: Sequence[Fault]) -> list[Replay]:
        """Run the model on saved faults again, and make them anew from their root inputs."""
        with self.coverage.tap():
            return replay(self._running(), faults)

    def shrink(self, faults: Sequence[Fault]) -> list[Shrunk]:
        """Leave out mutations that a fault does not need."""
        with self.coverage.tap():
            return shrink(self._running(), faults)

    # Starting and going on

    def _running(self) -> Search:
        if self._engine is None:
            if self.folder is None:
                raise CampaignError("the campaign has not begun: call run() first")
            self._read_folder()
        assert self._engine is not None
        return self._engine

    def _within(self, limits: Limits, progress: bool | None, start: Callable[[Limits], Writer | None]) -> Campaign:
        if not self._whole:
            raise CampaignError("the search was stopped within a wave: build a new Fuzzer and call resume()")
        if self.folder is not None:
            self.folder.lock()
        writer = None
        try:
            with self.coverage.tap(), screen_for(progress) as screen:
                writer = start(limits)
                campaign = self._search(limits, writer, screen)
        finally:
            try:
                if writer is not None:
                    writer.close()
            finally:
                if self.folder is not None:
                    self.folder.unlock()
        return campaign

    def _begin(self, limits: Limits) -> Writer | None:
        """Observe the seeds, unless this is not the first run."""
        if self._engine is None:
            # Before the model runs, as on resuming: buffers may change as it does.
            weights = {} if self.folder is None else self._weights()
            found = survey(self._runner(), self._roots, self._labels, observe=not self.rules.random)
            self._assemble(found)
            if self.folder is not None:
                kept = None if self.rules.random else self.coverage
                words = getattr(self.space, "words", None)
                config = {**self._config(limits, found), "weights": weights}
                self.folder.create(config, self._seed_arrays(found), kept, words)
        return self._writer()

    def _return(self, limits: Limits) -> Writer | None:
        """Take up the campaign in the folder: the waves before the saved coverage as told, those since, again.

        Without a saved coverage, all of them again.
        """
        folder = self.folder
        assert folder is not None
        # Campaigns of earlier versions do not tell their weights.
        require_weights(self._weights(), folder.config().get("weights", {}), str(folder.path))
        latest = None if self.rules.random else folder.latest_coverage()
        upto = latest[0] if latest is not None else None if self.rules.random else 0
        records = self._read_folder(upto, going_on=True)
        engine = self._running()
        if latest is not None:
            folder.require_log_up_to(latest[0], engine.book.tally.waves)
            self.coverage.load_state(latest[1], same_run=True)
        elif not self.rules.random:
            self._observe_anew(folder)
        folder.repair()
        for record in records:
            if self.rules.random:
                engine.book.apply(record)
            elif not engine.repeat(record):
                self._exact = False
        return self._writer()

    def _observe_anew(self, folder: CampaignFolder) -> None:
        """Have coverage take in the seeds, where the folder has lost what it was."""
        survey(self._runner(), self._roots, self._labels, observe=True)
        told = folder.config()["coverage of the seeds"]
        for name, value in read_values(self.coverage).items():
            # On other hardware it is not the same to the bit.
            if not math.isclose(value, told[name], rel_tol=1e-3):
                raise CampaignError(
                    f"{folder.path}: no coverage is saved there, and {name} after the seeds is {value:.6g}, not "
                    f"{told[name]:.6g} as at the start; restore the folder coverage from a copy, or build a new Fuzzer "
                    "with a coverage that has observed what it had"
                )

    def _read_folder(self, upto: int | None = None, *, going_on: bool = False) -> list[WaveRecord]:
        """Build everything from the folder; give the waves from ``upto`` on, which are not in the book yet."""
        folder = self.folder
        if folder is None:
            raise CampaignError("the campaign has no folder=")
        config = folder.config()
        arrays = folder.seeds()
        left_out = {int(row): reason for row, reason in config["left out"].items()}
        found = SeedReport(arrays["predictions"], arrays["usable"].astype(bool), left_out)
        ours, told = self._config(Limits(**config["limits"]), found), config["calibration"]
        # Campaigns of earlier versions tell a calibration by another id.
        if told.keys() == ours["calibration"].keys() and all(
            self.coverage.has_calibration(name, identity) for name, identity in told.items()
        ):
            ours["calibration"] = told
        require_same(ours, config, str(folder.path), going_on=going_on)
        self._only_read = not going_on
        if self._checks or self._rival is not None:
            again = survey(self._runner(), self._roots, self._labels, observe=False)
            found = SeedReport(found.predictions, found.usable, left_out, again.ran)
        self._assemble(found)
        assert self._engine is not None
        assert self._meter is not None
        self._meter.start = config["coverage of the seeds"]
        later = []
        for record in folder.records():
            if upto is not None and record.wave >= upto:
                later.append(record)
            else:
                self._engine.book.apply(record)
        return later

    def _assemble(self, found: SeedReport) -> None:
        given = self._labels
        labels = found.predictions if given is None else given.cpu().numpy()
        judge = FaultChecker(
            self.space,
            self._preprocess,
            labels,
            found.predictions,
            checks=self._checks,
            rival=self._rival,
            batch=self.rules.batch,
            limit=self.rules.time_limit,
        )
        if found.ran is not None:
            judge.learn(self._roots, found.ran)
        book = CampaignState(
            self._roots,
            labels,
            found.predictions,
            found.usable,
            moves=np.array([mutation.geometric for mutation in self.mutations]),
            kinds=judge.kinds,
            tries=self.rules.tries,
            wave=self.rules.wave,
        )
        self._survey = found
        self._meter = StatsReader({} if self.rules.random else read_values(self.coverage))
        self._engine = Search(
            self.coverage,
            book,
            self._runner(),
            judge,
            self.mutations,
            self.space,
            self._validity,
            self.rules,
            given,
        )

    # Searching

    def _search(self, limits: Limits, writer: Writer | None, screen: ProgressView) -> Campaign:
        engine = self._running()
        tally = engine.book.tally
        began = time.monotonic() - tally.seconds
        clock = Timer(self._checkpoint)
        try:
            while not self._done(limits, time.monotonic() - began):
                self._whole = False
                record, faults = engine.advance(limits.iterations, lambda: time.monotonic() - began)
                if writer is not None:
                    writer.commit(record, faults)
                self._whole = True
                if clock.time_to_show():
                    self._show(clock, writer, screen, time.monotonic() - began)
                if writer is not None and clock.time_to_save():
                    self._save(writer)
        finally:
            # Within a wave coverage may be ahead of the log; then the state saved before is the one to go on from.
            if writer is not None and self._whole:
                self._save(writer)
        return self._finish(clock, writer, screen, time.monotonic() - began)

    def _done(self, limits: Limits, seconds: float) -> bool:
        book = self._running().book
        if limits.iterations is not None and book.tally.started >= limits.iterations and book.idle:
            return True
        if limits.faults is not None and book.tally.faults >= limits.faults:
            return True
        return limits.seconds is not None and seconds >= limits.seconds

    def _show(self, clock: Timer, writer: Writer | None, screen: ProgressView, seconds: float) -> Stats:
        stats = self._read(seconds, clock.values(self._values))
        screen.show(stats)
        if writer is not None:
            writer.figures(stats)
        return stats

    def _save(self, writer: Writer) -> None:
        assert self.folder is not None
        writer.flush()
        self.folder.log.sync()
        if not self.rules.random:
            self.folder.save_coverage(self.coverage, self._running().book.tally.waves)

    def _finish(self, clock: Timer, writer: Writer | None, screen: ProgressView, seconds: float) -> Campaign:
        engine, found = self._running(), self._survey
        assert found is not None
        stats = self._read(seconds, self._values())
        screen.show(stats, last=True)
        campaign = Campaign(
            stats=stats,
            faults=engine.book.faults,
            findings=() if self.rules.random else tuple(str(finding) for finding in self.coverage.findings()),
            left_out=found.left_out,
            exact=self._exact,
            folder=None if self.folder is None else self.folder.path,
            space=self.space,
            mutations=self.mutations,
            _book=engine.book,
        )
        if writer is not None and self.folder is not None:
            writer.figures(stats)
            self.folder.write_json("summary.json", campaign.to_json())
        return campaign

    def _read(self, seconds: float, values: Mapping[str, float]) -> Stats:
        assert self._meter is not None
        return self._meter.read(self._running().book, seconds, values)

    def _values(self) -> dict[str, float]:
        return {} if self.rules.random else read_values(self.coverage)

    # Parts

    def _runner(self) -> ModelRunner:
        return ModelRunner(
            self.coverage,
            self.space,
            self._preprocess,
            self.rules.batch,
            self.rules.time_limit,
            classes=self._labels is not None or not self._checks,
            keep_outputs=bool(self._checks),
        )

    def _writer(self) -> Writer | None:
        """A writer that knows which faults there are: so many of a group get pictures, however often it is begun."""
        if self.folder is None:
            return None
        writer = Writer(self.folder, self.mutations, self.space, self.pictures)
        writer.restore(self._running().book.faults[:])
        return writer

    def _weights(self) -> dict[str, str]:
        models = {} if self.coverage.model is None else {"model": self.coverage.model}
        if self._rival is not None:
            models["second model"] = self._rival.model
        return describe_weights(models)

    def _seed_arrays(self, found: SeedReport) -> dict[str, np.ndarray]:
        labels = found.predictions if self._labels is None else self._labels.cpu().numpy()
        return {
            "inputs": self._roots.cpu().numpy(),
            "labels": labels,
            "predictions": found.predictions,
            "usable": found.usable.astype(np.uint8),
        }

    def _config(self, limits: Limits, found: SeedReport) -> dict[str, Any]:
        random = self.rules.random
        return {
            "rules": describe_rules(self.rules, self._validity),
            "space": self.space.identity(),
            "mutations": [mutation.identity() for mutation in self.mutations],
            "criteria": [] if random else [criterion.name for criterion in self.coverage.criteria],
            "calibration": {} if random else self.coverage.calibration_ids(),
            "checks": [*self._checks, *(["second model"] if self._rival is not None else [])],
            "seeds": fingerprint((self._roots, torch.from_numpy(found.predictions))),
            "coverage of the seeds": {} if self._meter is None else self._meter.start,
            "left out": {str(row): reason for row, reason in found.left_out.items()},
            "limits": asdict(limits),
            "machine": describe_machine(self.coverage.device),
            "notes": self._notes,
        }
