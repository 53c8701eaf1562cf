"""Sum up ``select``: differences to DeepGini by test set, over all sets, and whether the targets are reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.selecting.figures import difference
from neuralcov_lab.experiments.selecting.judging import LEARNT, Figures
from neuralcov_lab.experiments.selecting.orders import GINI, OURS
from neuralcov_lab.experiments.selecting.plan import KEPT_OUT

APFD = "apfd"
WITHOUT, WITH, CHOSEN = "orders", "after labels", "after Clotho's labels"
_DRAWS = 10_000


@dataclass(frozen=True)
class JudgedSet:
    """Hold what was found for one test set.

    Args:
        subject: whose test set it is.
        shift: of the set.
        result: as the job has it.
    """

    subject: str
    shift: str
    result: dict[str, Any]

    @property
    def kept_out(self) -> bool:
        """Whether no choice was made on the subject."""
        return self.subject in KEPT_OUT

    @property
    def label(self) -> str:
        """The subject, with a star where no choice was made on it, and the shift."""
        return f"{self.subject}{'*' if self.kept_out else ''}, {self.shift}"

    def values(self, part: str, method: str, figure: str) -> list[float]:
        """Return a figure of an order in every pool in which it was made."""
        own: dict[str, Figures] = self.result[part]
        return own.get(method, {}).get(figure, [])

    def mean(self, part: str, method: str, figure: str) -> float:
        """Return the mean over pools."""
        return fmean(self.values(part, method, figure))

    def gain(self, part: str, method: str, figure: str = APFD) -> tuple[float, float, float]:
        """Return, in points, by how much an order is above DeepGini in the same pools: mean, and range."""
        ours, theirs = self.values(part, method, figure), self.values(part, GINI, figure)
        mean, low, high = difference(ours, theirs[: len(ours)])
        return 100 * mean, 100 * low, 100 * high


def sets_of(jobs: Iterable[JobResult]) -> list[JudgedSet]:
    """Return all test sets of those jobs that measured networks."""
    return [
        JudgedSet(job.parameters["subject"], name, own)
        for job in jobs
        for name, own in job.result.get("sets", {}).items()
    ]


def sentence_sets_of(jobs: Iterable[JobResult]) -> list[JudgedSet]:
    """Return all sets of texts that the sentence encoder read."""
    return [
        JudgedSet(f"sentences-{job.parameters['data']}", name, own)
        for job in jobs
        for name, own in job.result.get("sentences", {}).items()
    ]


@dataclass(frozen=True)
class Gain:
    """Sum up an order's gains over DeepGini.

    Args:
        mean: over test sets, in points.
        low: of the range that holds the mean in 95 of 100 draws of as many subjects.
        high: of that range.
        least: on the worst test set.
        where: which that is.
        better: on how many sets the gain is above 0.
        sets: how many sets there are.
    """

    mean: float
    low: float
    high: float
    least: float
    where: str
    better: int
    sets: int

    @classmethod
    def of(cls, sets: Sequence[JudgedSet], part: str, method: str, figure: str = APFD) -> Gain:
        """Sum up over some sets in which the order was made."""
        found = {own.label: own.gain(part, method, figure)[0] for own in sets}
        by_subject: dict[str, list[float]] = {}
        for own in sets:
            by_subject.setdefault(own.subject, []).append(found[own.label])
        low, high = _drawn_again(list(by_subject.values()))
        where = min(found, key=lambda name: found[name])
        return cls(
            fmean(found.values()),
            low,
            high,
            found[where],
            where,
            sum(gain > 0 for gain in found.values()),
            len(found),
        )

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def _drawn_again(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the range of the mean over as many groups, drawn with repetition (bootstrap)."""
    sums = np.array([sum(group) for group in groups])
    counts = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(0).integers(len(groups), size=(_DRAWS, len(groups)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), (0.025, 0.975)).tolist()
    return low, high


def more_faults(sets: Sequence[JudgedSet], part: str, method: str, percent: int = 5) -> float:
    """Return how many more faults an order has among the first inputs than DeepGini, as a share of these."""
    ours, theirs = (fmean(own.mean(part, name, f"at {percent} %") for own in sets) for name in (method, GINI))
    return ours / theirs - 1


@dataclass(frozen=True)
class Target:
    """Hold a target of the benchmark, what was found, and whether it is reached."""

    words: str
    found: str
    reached: bool


def targets(sets: Sequence[JudgedSet], costs: Sequence[tuple[str, float]]) -> list[Target]:
    """Judge the targets: gains without and with labels, and time as a multiple of the forward pass."""
    said = []
    checked = [own for own in sets if own.kept_out]
    for some, where in ((sets, ""), (checked, "networks * alone, ")):
        for part, method, wanted, least, words in (
            (WITHOUT, OURS, 2.0, -1.0, "without labels"),
            (WITH, LEARNT, 3.0, 0.0, "with 500 labels"),
        ):
            if not some:
                continue
            found = Gain.of(some, part, method)
            enough = round(found.mean, 2) >= wanted
            said.append(Target(f"{where}{words}, mean at least {wanted:g} points above", str(found), enough))
            below = "never below" if not least else f"never more than {-least:g} point below"
            worst = f"worst {found.least:+.2f} ({found.where})"
            said.append(Target(f"{where}{words}, {below}", worst, round(found.least, 2) >= least))
    for subject, cost in costs:
        said.append(Target(f"at most 3 × the forward pass: {subject}", f"{cost:.1f} ×", cost <= 3))
    return said


def cost_of(job: JobResult) -> float:
    """Return the time of ranking as a multiple of the network's own."""
    seconds = job.result["seconds"]
    return float(seconds["ranking"] / seconds["the network alone"])
