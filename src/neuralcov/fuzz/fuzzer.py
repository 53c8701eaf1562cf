"""Fuzzer: what a user holds. Searches for inputs the model gets wrong, and can be stopped and resumed at any time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from neuralcov.core.errors import CampaignError, InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.distributed import Workers
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.result import Campaign, Stats, StatsReader
from neuralcov.fuzz.campaign.resume import OpenCampaign, begin, read, resume
from neuralcov.fuzz.campaign.screen import ProgressView, view_for
from neuralcov.fuzz.campaign.setup import CampaignSetup, checked_inputs, checked_labels, checked_mutations
from neuralcov.fuzz.campaign.writer import Writer
from neuralcov.fuzz.faults.checks import Check, SecondModel, named_checks
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.faults.replay import Replay, Shrunk, replay, shrink
from neuralcov.fuzz.formats import InputFormat, format_of
from neuralcov.fuzz.limits import Limits, Timer
from neuralcov.fuzz.mutations import Mutation
from neuralcov.fuzz.rules import settings_of
from neuralcov.fuzz.search.sharing import SharedSearch, share
from neuralcov.fuzz.search.wave import Search
from neuralcov.fuzz.search.wave_worker import WaveWorker
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.fuzz.validity import Validity, usual_rule


class Fuzzer:
    """Search for inputs that a model gets wrong.

    A guide chooses parents, first the seeds; each is mutated until a mutant is acceptable. The model is run on that,
    and it is a fault if the model was right on the root input and is not on the mutant, whether or not the mutant is
    kept as a parent of further ones. ``wave`` parents advance together, each with one candidate at a time: candidates
    are mutated, run and judged as one batch, and admitted in order, each judged on the coverage it meets.

    By default parents and mutations go by how near inputs are to being misread, and mutants that come nearer or raise
    coverage are kept; see ``FuzzSettings``. With ``guide="coverage"`` and ``wave=1`` this is the algorithm of the NLC
    paper (Yuan, Pang and Wang, 2023), with two changes after DeepHunter (Xie et al., 2019): a mutant is compared with
    its root input moved by the lineage's geometric mutation, and a lineage holds at most one.

    Args:
        coverage: holds the model and the criteria; guides that go by coverage keep a mutant if any of them gains.
        inputs: the seeds: images as bytes or floats in [0, 1], or tokens ``(inputs, length)``.
        labels: their classes; by default what the model predicts for them.
        mutations: by default ``image_mutations`` or ``text_mutations`` for inputs of that format.
        preprocess: from pixels in [0, 1], or tokens, to what the model takes.
        folder: where the campaign is kept; without one it is kept in memory only.
        settings: how to search, see ``FuzzSettings``.
        rules: settings by name, in place of ``settings``: ``"published"``, those of the NLC paper's public artefact,
            or ``"paper"``, those of its text.
        validity: a rule of one's own, ``(mutants, comparisons) -> (batch,) booleans`` over inputs as they are stored,
            in place of the usual one with ``alpha`` and ``beta``.
        levels: the byte that stands for 1.0.
        padding: the token behind a text's end.
        words: the vocabulary, a word per token, to show texts with.
        checks: faults of the user's own, see ``MutantBatch``.
        against: a second model that should agree, see ``SecondModel``.
        notes: plain data kept in the configuration, for whoever started the campaign.
        changes: fields of the settings by name, such as ``wave=64``; they go before ``settings``.

    Examples:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> seeds = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> campaign = nc.Fuzzer(nc.Coverage(model, [nc.NLC()]), seeds, wave=64).run(iterations=30)
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
        settings: FuzzSettings | None = None,
        rules: str | None = None,
        validity: Validity | None = None,
        levels: int = 255,
        padding: int = 0,
        words: Sequence[str] | None = None,
        checks: Check | Sequence[Check] | Mapping[str, Check] = (),
        against: nn.Module | SecondModel | None = None,
        notes: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        if settings is not None and rules is not None:
            raise InputError("both rules= and settings= were given: expected one; changes go by name, such as wave=64")
        if coverage.pool == "tokens":
            raise InputError(
                "a campaign changes inputs whole, but pool='tokens' makes an input of every token: use pool='mean', "
                "'last' or 'max'"
            )
        chosen = (settings or settings_of(rules)).changed(**changes)
        roots = checked_inputs(inputs)
        input_format = format_of(roots, levels=levels, padding=padding, words=words)
        self.folder = None if folder is None else CampaignFolder(folder)
        self._setup = CampaignSetup(
            coverage=coverage,
            roots=roots.to(coverage.device),
            labels=checked_labels(labels, len(roots), coverage.device),
            input_format=input_format,
            mutations=checked_mutations(mutations, roots, input_format, chosen),
            validity=validity or usual_rule(input_format, chosen.alpha, chosen.beta, chosen.counted),
            preprocess=preprocess or (lambda decoded: decoded),
            checks=named_checks(checks),
            second_model=SecondModel(against.eval()) if isinstance(against, nn.Module) else against,
            settings=chosen,
            notes=dict(notes or {}),
        )
        self._campaign: OpenCampaign | None = None
        self._stats_reader = StatsReader({})
        # False while a wave is under way: coverage may then be ahead of the log.
        self._between_waves = True

    @property
    def coverage(self) -> Coverage:
        """Return the coverage that guides."""
        return self._setup.coverage

    @property
    def settings(self) -> FuzzSettings:
        """Return how to search."""
        return self._setup.settings

    @property
    def input_format(self) -> InputFormat:
        """Return how inputs are stored."""
        return self._setup.input_format

    @property
    def mutations(self) -> Sequence[Mutation]:
        """Return the ways to change inputs, which the steps of a fault's lineage refer to."""
        return self._setup.mutations

    @property
    def search(self) -> Search:
        """Return the search as far as it has come; read from the folder if this fuzzer has not run yet."""
        return self._opened().search

    def run(
        self,
        iterations: int | None = None,
        *,
        seconds: float | None = None,
        faults: int | None = None,
        until_new: float | None = None,
        calls: int | None = None,
        progress: bool | None = None,
        workers: Workers | None = None,
    ) -> Campaign:
        """Search until a limit is reached; limits count from the start of the campaign.

        Args:
            iterations: how many seeds to sample.
            seconds: for how long.
            faults: until so many faults are saved.
            until_new: until a mutant run next shows a new fault, or raises coverage, with less than this chance, as
                estimated from what was seen (Good and Turing).
            calls: until the model was run on so many mutants; the wave under way is finished.
            progress: show a live screen, or lines where there is no terminal; by default only in a terminal.
            workers: who runs the waves, such as ``neuralcov.integrations.ray.FuzzWorkers``; needs ``folder=``.
        """
        limits = Limits(iterations, seconds, faults, until_new, calls)
        campaign = self._campaign
        if campaign is not None and not campaign.can_go_on:
            raise CampaignError("the campaign was only read, so coverage has not seen what it found: call resume()")
        if campaign is None and self.folder is not None:
            self.folder.require_new()
        return self._within(limits, progress, workers, lambda: campaign or begin(self._setup, self.folder, limits))

    def resume(
        self,
        iterations: int | None = None,
        *,
        seconds: float | None = None,
        faults: int | None = None,
        until_new: float | None = None,
        calls: int | None = None,
        progress: bool | None = None,
        workers: Workers | None = None,
    ) -> Campaign:
        """Go on with the campaign in the folder, up to the limits it was given at first or to new ones.

        The coverage and everything else must be as at the start; the coverage's state comes from the folder.
        """
        folder = self.folder
        if folder is None:
            raise CampaignError("there is nothing to resume: the campaign has no folder=")
        if all(limit is None for limit in (iterations, seconds, faults, until_new, calls)):
            limits = Limits(**folder.config()["limits"])
        else:
            limits = Limits(iterations, seconds, faults, until_new, calls)
        return self._within(limits, progress, workers, lambda: resume(self._setup, folder))

    def load(self) -> list[Fault]:
        """Read the campaign in the folder without going on with it; return its faults."""
        if self._campaign is None and self.folder is None:
            raise CampaignError("the campaign has no folder=")
        return self.search.state.faults

    def replay(self, faults: Sequence[Fault]) -> list[Replay]:
        """Run the model on saved faults again, and make them anew from their root inputs."""
        with self.coverage.tap():
            return replay(self.search, faults)

    def shrink(self, faults: Sequence[Fault]) -> list[Shrunk]:
        """Leave out mutations that a fault does not need."""
        with self.coverage.tap():
            return shrink(self.search, faults)

    def worker(self) -> WaveWorker:
        """Return a worker for the same campaign, searched by another process; this fuzzer's folder is left alone."""
        return WaveWorker(self._setup)

    def _opened(self) -> OpenCampaign:
        if self._campaign is None:
            if self.folder is None:
                raise CampaignError("the campaign has not begun: call run() first")
            self._open(read(self._setup, self.folder))
        assert self._campaign is not None
        return self._campaign

    def _open(self, campaign: OpenCampaign) -> None:
        if campaign is not self._campaign:
            self._campaign, self._stats_reader = campaign, StatsReader(campaign.seed_values)

    def _within(
        self, limits: Limits, progress: bool | None, workers: Workers | None, start: Callable[[], OpenCampaign]
    ) -> Campaign:
        """Start or go on and search, with the folder locked and everything written at the end."""
        if workers is not None and self.folder is None:
            raise CampaignError("workers= needs folder=: workers that join are told what the log there holds")
        if not self._between_waves:
            raise CampaignError("the search was stopped within a wave: build a new Fuzzer and call resume()")
        if self.folder is not None:
            self.folder.lock()
        writer = None
        try:
            with self.coverage.tap(), view_for(progress) as view:
                self._open(start())
                writer = self._writer()
                result = self._search(limits, writer, view, workers)
        finally:
            try:
                if writer is not None:
                    writer.close()
            finally:
                if self.folder is not None:
                    self.folder.unlock()
        return result

    def _writer(self) -> Writer | None:
        """Make a writer that knows the faults so far: so many of a group get pictures, however often it is begun."""
        if self.folder is None:
            return None
        writer = Writer(self.folder, self.mutations, self.input_format, self.settings.pictures, self._setup.roots)
        writer.restore(self.search.state.faults[:])
        return writer

    def _search(self, limits: Limits, writer: Writer | None, view: ProgressView, workers: Workers | None) -> Campaign:
        search: Search | SharedSearch = self.search
        if workers is not None and writer is not None and self.folder is not None:
            search = share(self._opened(), self._setup, self.folder, workers, writer.flush)
        began = time.monotonic() - search.state.counts.seconds
        timer = Timer(self.settings.checkpoint)
        try:
            while not self._done(limits, time.monotonic() - began):
                self._between_waves = False
                record, faults = search.advance(limits.iterations, lambda: time.monotonic() - began)
                if writer is not None:
                    writer.commit(record, faults)
                self._between_waves = True
                if timer.time_to_show():
                    stats = self._stats(time.monotonic() - began, timer.values(self._values))
                    view.show(stats)
                    if writer is not None:
                        writer.add_stats(stats)
                if writer is not None and timer.time_to_save():
                    self._save(writer)
        finally:
            # Within a wave coverage may be ahead of the log; then the state saved before is the one to go on from.
            if writer is not None and self._between_waves:
                self._save(writer)
        return self._finish(writer, view, time.monotonic() - began)

    def _done(self, limits: Limits, seconds: float) -> bool:
        state = self.search.state
        if limits.iterations is not None and state.counts.started >= limits.iterations and state.idle:
            return True
        if limits.calls is not None and state.counts.run >= limits.calls:
            return True
        if limits.faults is not None and state.counts.faults >= limits.faults:
            return True
        if limits.until_new is not None and self._little_new(limits.until_new):
            return True
        return limits.seconds is not None and seconds >= limits.seconds

    def _little_new(self, limit: float) -> bool:
        """Return whether a further mutant shows something new with less than a chance, as far as can be told."""
        counts = self.search.state.counts
        latest, new = counts.latest
        if counts.run * limit < 1 or (self.settings.uses_coverage and latest * limit < 1 and new == 0):
            return False  # too few to tell
        raised = new / latest if self.settings.uses_coverage and latest else 0.0
        return max(counts.new_fault_chance, raised) < limit

    def _save(self, writer: Writer) -> None:
        assert self.folder is not None
        writer.flush()
        self.folder.log.sync()
        if self.settings.uses_coverage:
            self.folder.save_coverage(self.coverage, self.search.state.counts.waves)

    def _finish(self, writer: Writer | None, view: ProgressView, seconds: float) -> Campaign:
        opened = self._opened()
        stats = self._stats(seconds, self._values())
        view.show(stats, last=True)
        campaign = Campaign(
            stats=stats,
            faults=opened.search.state.faults,
            findings=tuple(map(str, self.coverage.findings())) if self.settings.uses_coverage else (),
            excluded=opened.report.excluded,
            exact=opened.exact,
            folder=None if self.folder is None else self.folder.path,
            input_format=self.input_format,
            mutations=self.mutations,
            state=opened.search.state,
        )
        if writer is not None and self.folder is not None:
            writer.add_stats(stats)
            self.folder.write_json("summary.json", campaign.to_json())
        return campaign

    def _stats(self, seconds: float, values: Mapping[str, float]) -> Stats:
        return self._stats_reader.read(self.search.state, seconds, values)

    def _values(self) -> dict[str, float]:
        return self.coverage.values(warn=False) if self.settings.uses_coverage else {}
