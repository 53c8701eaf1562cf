"""Draw by how much our orders are above DeepGini's, test set by test set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.selecting.judging import LEARNT
from neuralcov_lab.experiments.selecting.orders import OURS
from neuralcov_lab.experiments.selecting.summary import WITH, WITHOUT, sets_of

_DRAWN = ((WITHOUT, OURS, "without labels", "tab:green", -0.17), (WITH, LEARNT, "with labels", "tab:blue", 0.17))


def select_plot(jobs: Sequence[JobResult]) -> Any:
    """Draw the gain in APFD on each test set, without and with labels, with the range over pools."""
    sets = sets_of([job for job in jobs if job.belongs_to("select")])
    if not sets:
        return None
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 0.24 * len(sets) + 1), layout="constrained")
    for part, method, label, colour, shift in _DRAWN:
        gains = [own.gain(part, method) for own in sets]
        errors = [[mean - low for mean, low, _ in gains], [high - mean for mean, _, high in gains]]
        places = [place + shift for place in range(len(sets))]
        means = [mean for mean, _, _ in gains]
        axis.errorbar(means, places, xerr=errors, fmt="o", markersize=4, capsize=2, color=colour, label=label)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_yticks(range(len(sets)), [own.label for own in sets], fontsize=7)
    axis.invert_yaxis()
    axis.set(xlabel="APFD above DeepGini's, in points (* no choice was made on this network)")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8)
    return figure
