"""What came of a campaign, and how it stands at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from neuralcov.core.abundance import share_interval
from neuralcov.core.counted import counted
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.faults.fault import Fault, grouped
from neuralcov.fuzz.faults.quality import classes_reached, scaled_entropy
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation


@dataclass(frozen=True, eq=False)
class Campaign:
    """Hold the result of ``neuralcov.Fuzzer.run``.

    Args:
        stats: the figures at the end.
        faults: what was found wrong, in order.
        findings: what to bear in mind when reading the coverage.
        excluded: by number, root inputs that could not serve as seeds, and why.
        exact: whether waves repeated on resuming came out as logged; ``False`` on another device or version.
        folder: where everything lies.
        input_format: how inputs are stored.
        mutations: what steps of lineages refer to.
        state: the corpus, its lineage and the counts.
    """

    stats: Stats
    faults: Sequence[Fault]
    findings: tuple[str, ...]
    excluded: Mapping[int, str]
    exact: bool
    folder: Path | None
    input_format: InputFormat
    mutations: Sequence[Mutation]
    state: CampaignState

    @property
    def iterations(self) -> int:
        """Return the seeds that are done with."""
        return self.stats.iterations

    @property
    def outputs(self) -> int:
        """Return the mutants that were kept."""
        return self.stats.kept

    @property
    def values(self) -> Mapping[str, float]:
        """Return the coverage at the end, by criterion."""
        return self.stats.values

    @cached_property
    def inputs(self) -> Tensor:
        """Return the kept mutants as they are stored: bytes for images that came as bytes."""
        return self.state.corpus.inputs(slice(self.state.corpus.roots, None))

    @property
    def predictions(self) -> np.ndarray:
        """Return the class the model gives each kept mutant, −1 where it gives none."""
        return np.asarray(self.state.corpus.entries["prediction"][self.state.corpus.roots :])

    def groups(self) -> dict[tuple[str, ...], list[Fault]]:
        """Return faults by group, the largest first."""
        return grouped(self.faults)

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the figures, the groups and what to bear in mind."""
        return {
            **self.stats.to_json(),
            "candidates per second": self.stats.judged / self.stats.seconds if self.stats.seconds else None,
            "groups": [[*group, len(faults)] for group, faults in self.groups().items()],
            "findings": list(self.findings),
            "left out": {str(row): reason for row, reason in self.excluded.items()},
            "exact": self.exact,
        }

    def __repr__(self) -> str:
        return (
            f"Campaign({counted(self.iterations, 'seed')}, {self.outputs} kept, "
            f"{counted(len(self.faults), 'fault')} in "
            f"{counted(self.stats.classes, 'class')}, {self.stats.seconds:.1f} s)"
        )


_RECENT = 10.0


@dataclass(frozen=True)
class Stats:
    """Tell how a campaign stands at one moment.

    Args:
        seconds: since its start, pauses left out.
        waves: waves done.
        iterations: seeds that are done with, by a kept mutant or by using up their tries.
        candidates: mutants made.
        valid: of them, those that are acceptable.
        judged: of those, the ones that were run and whose gain is known.
        per_second: candidates judged per second, of late.
        kept: mutants in the queue.
        admitted: share of the judged that were kept.
        queue: root inputs and kept mutants.
        faults: how many were found.
        classes: how many classes the faults are predicted as.
        entropy: how evenly, see ``neuralcov.fuzz.faults.quality.scaled_entropy``.
        since_kept: seconds since a mutant was kept.
        since_fault: seconds since a fault was found.
        values: coverage, by criterion.
        growth: what it has grown by since the seeds were observed.
        latest: candidates judged of late, about a thousand.
        latest_kept: of them, those that were kept, since they showed something new.
        distinct: how many different faults were seen: another root input, wrong class or error.
        roots: how many root inputs led to a fault.
        faulty: how many mutants showed a fault, saved or not.
        faulty_kept: of the kept mutants, those that show a fault: what the NLC paper counts.
        new_fault_chance: the chance that the next mutant run shows a fault not seen so far.
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
    latest: int = 0
    latest_kept: int = 0
    distinct: int = 0
    roots: int = 0
    faulty: int = 0
    faulty_kept: int = 0
    new_fault_chance: float = 1.0

    @property
    def still_new(self) -> str | None:
        """Say how often candidates still show something new; ``None`` where no coverage guides or none was judged."""
        if not self.values or not self.latest:
            return None
        low, high = share_interval(self.latest_kept, self.latest)
        if not self.latest_kept:
            return f"none of the last {self.latest:,} candidates showed anything new (at most {high:.2%} do)"
        often = f"one in {self.latest / self.latest_kept:.3g}"
        return f"{often} candidates still shows something new ({low:.2%} to {high:.2%}, of the last {self.latest:,})"

    @property
    def still_faults(self) -> str | None:
        """Say how likely a further mutant shows a new fault; ``None`` before the first fault."""
        if not self.distinct:
            return None
        if not self.new_fault_chance:
            return "every fault was seen more than once: new ones are rare now"
        return f"about one in {1 / self.new_fault_chance:.3g} further mutants shows a fault not seen so far"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


class StatsReader:
    """Read off how a campaign stands, beside the coverage that the seeds had and the speed of late."""

    def __init__(self, start: Mapping[str, float]) -> None:
        self.start = dict(start)
        self._recent: deque[tuple[float, int]] = deque()

    def read(self, state: CampaignState, seconds: float, values: Mapping[str, float]) -> Stats:
        """Return how things stand, given the latest coverage."""
        counts = state.counts
        self._recent.append((seconds, counts.judged))
        while len(self._recent) > 2 and seconds - self._recent[0][0] > _RECENT:
            self._recent.popleft()
        before, judged = self._recent[0]
        passed = seconds - before
        # At the first reading there is no earlier one: the mean since the start.
        rate = (counts.judged - judged) / passed if passed > 0 else counts.judged / max(seconds, 1e-9)
        return Stats(
            seconds=round(seconds, 3),
            waves=counts.waves,
            iterations=counts.finished,
            candidates=counts.candidates,
            valid=counts.acceptable,
            judged=counts.judged,
            per_second=round(rate, 2),
            kept=counts.kept,
            admitted=counts.admitted,
            queue=len(state.corpus),
            faults=counts.faults,
            classes=classes_reached(counts.reached),
            entropy=scaled_entropy(counts.reached),
            since_kept=round(seconds - counts.last_kept, 3),
            since_fault=round(seconds - counts.last_fault, 3),
            values=dict(values),
            growth={name: value - self.start.get(name, 0.0) for name, value in values.items()},
            latest=counts.latest[0],
            latest_kept=counts.latest[1],
            distinct=counts.distinct,
            roots=len(counts.broken),
            faulty=counts.faulty,
            faulty_kept=counts.faulty_kept,
            new_fault_chance=counts.new_fault_chance,
        )
