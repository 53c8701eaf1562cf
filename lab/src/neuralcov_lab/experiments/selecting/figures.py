"""Figures of an order of inputs: how soon it shows the faults."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

PERCENTS = (1, 3, 5, 10)


def apfd(faulty: np.ndarray) -> float:
    """Return the average percentage of faults detected: 1 − Σ places/(n·m) + 1/(2n), places from 1.

    Args:
        faulty: of the inputs in order, which are faults; at least one.

    >>> apfd(np.array([True, False, False, False])), apfd(np.array([False, False, False, True]))
    (0.875, 0.125)
    """
    places = np.flatnonzero(faulty) + 1
    return float(1 - places.sum() / (len(faulty) * len(places)) + 1 / (2 * len(faulty)))


def found_at(faulty: np.ndarray, percent: float) -> float:
    """Return the share of all faults among the first inputs, at least one.

    >>> found_at(np.array([True, False, True, False]), 50)
    0.5
    """
    return float(faulty[: max(1, round(len(faulty) * percent / 100))].sum() / faulty.sum())


def figures(faulty: np.ndarray) -> dict[str, float]:
    """Return all figures of an order."""
    return {"apfd": apfd(faulty)} | {f"at {percent} %": found_at(faulty, percent) for percent in PERCENTS}


def difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of paired differences, and the range that holds nineteen in twenty of them.

    >>> difference([0.5, 0.75], [0.25, 0.5])
    (0.25, 0.25, 0.25)
    """
    apart = np.array(ours) - np.array(theirs)
    low, high = np.quantile(apart, (0.025, 0.975)).tolist()
    return fmean(apart.tolist()), low, high
