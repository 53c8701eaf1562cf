"""The page of ``select``: wins and losses alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.selecting.figures import PERCENTS, difference
from neuralcov_lab.experiments.selecting.orders import GINI, OURS
from neuralcov_lab.experiments.selecting.plan import KEPT_OUT, LEARNT

_WORDS = (
    "Orders of unlabelled inputs by how soon they show faults, in random half pools of each test set. APFD, in points "
    "(100 is best, 50 is a random order), is the mean over pools; CAM was searched in a few of them. Differences are "
    "paired, with the range that holds nineteen in twenty pools; pools of one test set overlap. A set with fewer than "
    "ten faults is left out. Subjects marked * had no part in any choice."
)


def select_page(jobs: Sequence[JobResult], notes: Iterable[str]) -> str:
    """Return the page."""
    sets = [(job.parameters["subject"], name, found) for job in jobs for name, found in job.result["sets"].items()]
    if not sets:
        return "No test set had ten faults."
    parts = [_WORDS, *notes, "## Against DeepGini", _against(sets), "## APFD", _apfd(sets)]
    parts += ["## Share of faults among the first inputs, mean over all sets", _shares(sets)]
    return "\n\n".join(parts)


def select_lead(jobs: Sequence[JobResult]) -> str:
    """Say by how much our orders find faults sooner than DeepGini's, with and without labels."""
    sets = [("", "", found) for job in jobs for found in job.result["sets"].values()]
    if not sets:
        return "Nothing to compare."
    plain, learnt = _means(sets)
    return (
        f"**Without labels our order finds faults {_sooner(plain)} than DeepGini's, with some labels "
        f"{_sooner(learnt)}:** the mean difference of APFD over {len(sets)} test sets."
    )


def _sooner(points: float) -> str:
    return f"{abs(points):.1f} points {'sooner' if points > 0 else 'later'}"


def _means(sets: Sets) -> list[float]:
    """Return our APFD less DeepGini's in points, mean over sets, without and with labels."""
    return [
        fmean(100 * (_mean(found[part], method, "apfd") - _mean(found[part], GINI, "apfd")) for _, _, found in sets)
        for part, method in (("orders", OURS), ("after labels", LEARNT))
    ]


Sets = Sequence[tuple[str, str, dict[str, Any]]]


def _against(sets: Sets) -> str:
    lines = [
        f"| subject | set | inputs | faults | {OURS} − {GINI} | with labels − {GINI} |",
        "|---|---|---|---|---|---|",
    ]
    for subject, name, found in sets:
        ours = _difference(found["orders"], OURS)
        learnt = _difference(found["after labels"], LEARNT)
        mark = "*" if subject in KEPT_OUT else ""
        lines.append(f"| {subject}{mark} | {name} | {found['inputs']} | {found['faults']} | {ours} | {learnt} |")
    means = _means(sets)
    lines.append(f"| mean | | | | {means[0]:+.2f} | {means[1]:+.2f} |")
    return "\n".join(lines)


def _difference(orders: dict[str, list[dict[str, float]]], method: str) -> str:
    ours, theirs = ([100 * pool["apfd"] for pool in orders[name]] for name in (method, GINI))
    apart, low, high = difference(ours, theirs)
    return f"{apart:+.2f} ({low:+.2f} to {high:+.2f})"


def _mean(orders: dict[str, list[dict[str, float]]], method: str, figure: str) -> float:
    return fmean(pool[figure] for pool in orders[method])


def _apfd(sets: Sets) -> str:
    columns = [f"{subject}, {name}" for subject, name, _ in sets]
    lines = [f"| | mean | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 2)]
    rows = []
    for method in _methods(sets):
        values = [100 * _mean(found["orders"], method, "apfd") for _, _, found in sets]
        rows.append((fmean(values), method, values))
    for average, method, values in sorted(rows, reverse=True):
        lines.append(f"| {method} | {average:.1f} | {' | '.join(f'{value:.1f}' for value in values)} |")
    return "\n".join(lines)


def _shares(sets: Sets) -> str:
    lines = [f"| | {' | '.join(f'{percent} %' for percent in PERCENTS)} |", "|" + "---|" * (len(PERCENTS) + 1)]
    for method in _methods(sets):
        values = [
            fmean(_mean(found["orders"], method, f"at {percent} %") for _, _, found in sets) for percent in PERCENTS
        ]
        lines.append(f"| {method} | {' | '.join(f'{value:.3f}' for value in values)} |")
    return "\n".join(lines)


def _methods(sets: Sets) -> list[str]:
    return [method for method in sets[0][2]["orders"] if all(method in found["orders"] for _, _, found in sets)]
