"""Clusters of faults: how many kinds of mistakes an order shows, by HDBSCAN on another network's features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FIRST = (100, 200, 500, 1000)
_SMALLEST = 5
# A cluster for faults that are like no others: they count for none.
NOISE = -1


def fault_clusters(features: np.ndarray, faulty: np.ndarray) -> np.ndarray:
    """Return the cluster of each fault, ``NOISE`` for inputs that are no faults and faults that belong to none.

    Args:
        features: of every input, from a network that had no part in ranking.
        faulty: which inputs are faults.
    """
    # Slow to import, and needed here alone.
    from sklearn.cluster import HDBSCAN

    found = np.full(len(faulty), NOISE)
    places = np.flatnonzero(faulty)
    if len(places) >= 2 * _SMALLEST:
        points = features[places].astype(np.float64)
        found[places] = HDBSCAN(min_cluster_size=_SMALLEST, copy=True).fit_predict(points)
    return found


def clusters_found(clusters: np.ndarray, firsts: Sequence[int] = FIRST) -> dict[str, float]:
    """Return the share of all clusters that show among the first inputs, for numbers that are at most half of all.

    Args:
        clusters: of the inputs in order.
        firsts: numbers of inputs.

    >>> clusters_found(np.array([0, -1, 0, 1, 2, -1]), [1, 3])
    {'clusters at 1': 0.3333333333333333, 'clusters at 3': 0.3333333333333333}
    """
    whole = len(set(clusters[clusters != NOISE].tolist()))
    if not whole:
        return {}
    return {
        f"clusters at {first}": len(set(clusters[:first][clusters[:first] != NOISE].tolist())) / whole
        for first in firsts
        if 2 * first <= len(clusters)
    }
