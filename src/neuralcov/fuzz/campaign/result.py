"""What came of a campaign, and how it stands at one moment."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from neuralcov.core.errors import CoverageWarning
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.fault import Fault, grouped
from neuralcov.fuzz.faults.quality import classes_reached, scaled_entropy
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation


@dataclass(frozen=True, eq=False)
class Campaign:
    """The result of :meth:`neuralcov.Fuzzer.run`.

    Args:
        stats: the figures at the end.
        faults: what was found wrong, in order.
        findings: what to bear in mind when reading the coverage.
        left_out: by number, root inputs that could not serve as seeds, and why.
        exact: whether waves repeated on resuming came out as logged; ``False`` on another device or version.
        folder: where everything lies.
        space: how inputs are stored.
        mutations: what steps of lineages refer to.
    """

    stats: Stats
    faults: Sequence[Fault]
    findings: tuple[str, ...]
    left_out: Mapping[int, str]
    exact: bool
    folder: Path | None
    space: InputFormat
    mutations: Sequence[Mutation]
    _book: CampaignState

    @property
    def iterations(self) -> int:
        """Seeds that are done with."""
        return self.stats.iterations

    @property
    def outputs(self) -> int:
        """Mutants that were kept."""
        return self.stats.kept

    @property
    def values(self) -> Mapping[str, float]:
        """Coverage at the end, by criterion."""
        return self.stats.values

    @cached_property
    def inputs(self) -> Tensor:
        """The kept mutants as they are stored: bytes for images that came as bytes."""
        return self._book.corpus.inputs(slice(self._book.corpus.roots, None))

    @property
    def predictions(self) -> np.ndarray:
        """The class the model gives each kept mutant, −1 where it gives none."""
        return np.asarray(self._book.corpus.entries["prediction"][self._book.corpus.roots :])

    def groups(self) -> dict[tuple[str, ...], list[Fault]]:
        """Faults by group, the largest first."""
        return grouped(self.faults)

    def to_json(self) -> dict[str, Any]:
        """Plain data: the figures, the groups and what to bear in mind."""
        return {
            **self.stats.to_json(),
            "candidates per second": self.stats.judged / self.stats.seconds if self.stats.seconds else None,
            "groups": [[*group, len(faults)] for group, faults in self.groups().items()],
            "findings": list(self.findings),
            "left out": {str(row): reason for row, reason in self.left_out.items()},
            "exact": self.exact,
        }

    def __repr__(self) -> str:
        return (
            f"Campaign({self.iterations} seeds, {self.outputs} kept, {len(self.faults)} faults in "
            f"{self.stats.classes} classes, {self.stats.seconds:.1f} s)"
        )


_RECENT = 10.0


@dataclass(frozen=True)
class Stats:
    """A campaign at one moment.

    Args:
        seconds: since its start, pauses left out.
        waves: waves done.
        iterations: seeds that are done with, by a kept mutant or by using up their tries.
        candidates: mutants made.
        valid: of them, those that are valid.
        judged: of those, the ones that were run and whose gain is known.
        per_second: candidates judged per second, of late.
        kept: mutants in the queue.
        admitted: share of the judged that were kept.
        queue: root inputs and kept mutants.
        faults: how many were found.
        classes: how many classes the faults are predicted as.
        entropy: how evenly, see :func:`neuralcov.fuzz.faults.quality.scaled_entropy`.
        since_kept: seconds since a mutant was kept.
        since_fault: seconds since a fault was found.
        values: coverage, by criterion.
        growth: what it has grown by since the seeds were observed.
    """

    seconds: float
    waves: int
    iterations: int
    candidates: int
    valid: int
    judged: int
    per_second: float
    kept: int
    admitted: float
    queue: int
    faults: int
    classes: int
    entropy: float
    since_kept: float
    since_fault: float
    values: Mapping[str, float]
    growth: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


class StatsReader:
    """Reads off how a campaign stands; knows what coverage the seeds had, and how fast it went of late."""

    def __init__(self, start: Mapping[str, float]) -> None:
        self.start = dict(start)
        self._recent: deque[tuple[float, int]] = deque()

    def read(self, book: CampaignState, seconds: float, values: Mapping[str, float]) -> Stats:
        """How things stand, given the latest coverage."""
        tally = book.tally
        self._recent.append((seconds, tally.judged))
        while len(self._recent) > 2 and seconds - self._recent[0][0] > _RECENT:
            self._recent.popleft()
        before, judged = self._recent[0]
        passed = seconds - before
        # At the first reading there is no earlier one: the mean since the start.
        rate = (tally.judged - judged) / passed if passed > 0 else tally.judged / max(seconds, 1e-9)
        return Stats(
            seconds=round(seconds, 3),
            waves=tally.waves,
            iterations=tally.finished,
            candidates=tally.candidates,
            valid=tally.valid,
            judged=tally.judged,
            per_second=round(rate, 2),
            kept=tally.kept,
            admitted=tally.admitted,
            queue=len(book.corpus),
            faults=tally.faults,
            classes=classes_reached(tally.reached),
            entropy=scaled_entropy(tally.reached),
            since_kept=round(seconds - tally.last_kept, 3),
            since_fault=round(seconds - tally.last_fault, 3),
            values=dict(values),
            growth={name: value - self.start.get(name, 0.0) for name, value in values.items()},
        )


def read_values(coverage: Coverage) -> dict[str, float]:
    """Coverage without its warnings, which stand in the summary instead of on the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        return coverage.values()
