"""Rank the criteria of a plan by how many ground-truth orders they get right, with what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean, median
from typing import Any

from neuralcov.core.abundance import share_interval
from neuralcov_lab.experiments.comparisons import Comparison
from neuralcov_lab.experiments.fuzzing import RANDOM
from neuralcov_lab.experiments.jobs import JobFolder
from neuralcov_lab.experiments.timing import NAME as TIME
from neuralcov_lab.experiments.timing import PLAIN


@dataclass
class Score:
    """Count orders that were got right, of those that were judged."""

    right: int = 0
    judged: int = 0

    def add(self, right: bool) -> None:
        """Count one more."""
        self.right += right
        self.judged += 1

    @property
    def share(self) -> float:
        """Right by judged; 0 where nothing was judged."""
        return self.right / self.judged if self.judged else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Between which shares the true one lies in 95 of 100 cases, as if orders were independent (Wilson)."""
        return share_interval(self.right, self.judged)

    def __str__(self) -> str:
        return f"{self.right}/{self.judged}" if self.judged else "–"


@dataclass
class Standing:
    """Hold how one criterion did, with all its settings.

    ``once`` is how many of the orders in ``total`` one run gets right on average, each order counting once however
    often it was run. ``cost`` is how many times as long measuring takes as running the model, ``None`` where it was
    not timed.
    """

    criterion: str
    total: Score = field(default_factory=Score)
    once: float = 0.0
    pairs: Score = field(default_factory=Score)
    by_part: dict[str, Score] = field(default_factory=dict)
    by_basis: dict[str, Score] = field(default_factory=dict)
    by_setting: dict[str, Score] = field(default_factory=dict)
    cost: float | None = None

    @property
    def orders(self) -> int:
        """How many orders the setting that was judged most often was judged on."""
        return max((score.judged for score in self.by_setting.values()), default=0)

    @property
    def share_once(self) -> float:
        """The share of orders that a single run gets right on average."""
        return self.once / self.total.judged if self.total.judged else 0.0

    @property
    def balanced(self) -> float:
        """The share of right orders averaged over experiments and ways of measuring, many orders counting as few."""
        return mean(score.share for score in self.by_part.values()) if self.by_part else 0.0

    @property
    def best(self) -> str:
        """The setting that gets most right."""
        return max(self.by_setting, key=lambda name: self.by_setting[name].share) if self.by_setting else "–"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        shares = {"share": self.total.share, "share once": self.share_once, "balanced": self.balanced}
        return {**asdict(self), **shares, "best": self.best}


def ranking(found: Sequence[Comparison], costs: dict[str, float], planned: Sequence[str] = ()) -> list[Standing]:
    """Rank criteria, most orders right first; the two rules of NLC apart.

    Args:
        found: what was judged.
        costs: by criterion, in forward passes.
        planned: criteria that are listed even if nothing was judged. What the library defines beyond these does not
            matter: a page that was written once stays as it is.
    """
    standings = {family(name): Standing(family(name)) for name in planned}
    for comparison in found:
        for setting in comparison.runs:
            standing = standings.setdefault(family(setting), Standing(family(setting)))
            right = comparison.right(setting)
            standing.once += comparison.runs_right(setting) / len(comparison.runs[setting])
            for pair in comparison.pairs(setting):
                standing.pairs.add(pair)
            for score in (
                standing.total,
                standing.by_part.setdefault(f"{comparison.experiment}, {comparison.basis}", Score()),
                standing.by_basis.setdefault(comparison.basis, Score()),
                standing.by_setting.setdefault(setting.replace(", by=label", ""), Score()),
            ):
                score.add(right)
    for standing in standings.values():
        standing.cost = next((cost for name, cost in costs.items() if family(name) == standing.criterion), None)
    usual = max((standing.orders for standing in standings.values()), default=0)
    return sorted(standings.values(), key=lambda s: (2 * s.orders < usual, -s.total.share, s.criterion))


def beside(found: Sequence[Comparison], criterion: str) -> list[Comparison]:
    """Return the comparisons that a criterion was judged in, with as many runs of the others as it has.

    Of suites that were compared for some criteria in a longer order, all have the part that this one has.
    """
    judged = [one for one in found if {criterion} < {family(name) for name in one.runs}]
    return [_as_many_runs(_with_longer(one, found)) for one in judged]


def _with_longer(one: Comparison, found: Sequence[Comparison]) -> Comparison:
    runs = dict(one.runs)
    for other in found:
        alike = (one.experiment, one.subject, one.basis) == (other.experiment, other.subject, other.basis)
        if alike and one.label.startswith(f"{other.label}, ") and set(one.suites) < set(other.suites):
            places = [other.suites.index(suite) for suite in one.suites]
            runs |= {name: [[values[at] for at in places] for values in own] for name, own in other.runs.items()}
    return replace(one, runs=runs)


def _as_many_runs(one: Comparison) -> Comparison:
    fewest = min(len(values) for values in one.runs.values())
    return replace(one, runs={name: values[:fewest] for name, values in one.runs.items()})


def family(setting: str) -> str:
    """Return the criterion a setting belongs to; NLC's rules count as two.

    >>> family("LSC(10, by=label)"), family("NLC(rule=all)"), family("NLC")
    ('LSC', 'NLC(rule=all)', 'NLC')
    """
    return setting if setting.startswith("NLC") else setting.partition("(")[0]


def planned_criteria(folder: JobFolder) -> list[str]:
    """Return the criteria of a folder's plan, without the names that stand for none."""
    return [name for name in folder.criteria() if name not in (PLAIN, RANDOM)]


def costs(folder: JobFolder) -> dict[str, float]:
    """Return, by criterion, seconds over those of the model alone, at the first batch size, median of the runs."""
    seconds: dict[str, float] = {}
    beside: dict[str, float] = {}
    for job in folder.results():
        if job.belongs_to(TIME):
            name = job.parameters["criterion"]
            seconds[name] = median(next(iter(job.result["seconds"].values())))
            if "plain" in job.result:
                beside[name] = median(next(iter(job.result["plain"].values())))
    plain = seconds.pop(PLAIN, None)
    if plain is not None:
        beside = dict.fromkeys(seconds, plain) | beside
    return {name: value / beside[name] for name, value in seconds.items() if name in beside}
