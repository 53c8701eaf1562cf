"""How a campaign stands at one moment, for the screen and for ``stats.jsonl``."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from neuralcov.core.errors import CoverageWarning
from neuralcov.coverage import Coverage
from neuralcov.fuzz.book import Book
from neuralcov.quality.diversity import classes_reached, scaled_entropy

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
        entropy: how evenly, see :func:`neuralcov.quality.scaled_entropy`.
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


class Meter:
    """Reads off how a campaign stands; knows what coverage the seeds had, and how fast it went of late."""

    def __init__(self, start: Mapping[str, float]) -> None:
        self.start = dict(start)
        self._recent: deque[tuple[float, int]] = deque()

    def read(self, book: Book, seconds: float, values: Mapping[str, float]) -> Stats:
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
