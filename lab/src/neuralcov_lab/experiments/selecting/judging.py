"""Judge orders of half pools by the faults they show, given what was measured of a test set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.selecting.clotho import clotho_order
from neuralcov_lab.experiments.selecting.clusters import NOISE, clusters_found, fault_clusters
from neuralcov_lab.experiments.selecting.figures import figures
from neuralcov_lab.experiments.selecting.measuring import Measured
from neuralcov_lab.experiments.selecting.meter import pool_rows
from neuralcov_lab.experiments.selecting.orders import GINI, OURS, Pool

LEARNT, CLOTHO = "learnt from labels", "Clotho's idea"
# With fewer faults, shares of them say nothing.
FEWEST_FAULTS = 10
_DIGITS = 5
Figures = dict[str, list[float]]


def judge(
    context: ExperimentContext,
    found: Measured,
    strength: int,
    pools: int,
    searched: int,
    labels: int,
    other: np.ndarray | None,
) -> dict[str, Any] | None:
    """Return figures of every order in many half pools; ``None`` for a test set with hardly any fault.

    Args:
        context: seeds.
        found: what was measured of the test set.
        strength: of its shift.
        pools: how many random halves.
        searched: in how many of them the slow greedy orders take part.
        labels: labelled inputs of a pool, at most a fifth of it.
        other: features of the same inputs in another network, for clusters of faults.
    """
    columns = found.columns
    truth = columns["truth"].astype(np.int64)
    wrong = columns["first"].astype(np.int64) != truth
    if wrong.sum() < FEWEST_FAULTS:
        return None
    clusters = np.full(len(truth), NOISE) if other is None else fault_clusters(other, wrong)
    made: dict[str, Figures] = {}
    learnt: dict[str, Figures] = {}
    chosen: dict[str, Figures] = {}
    for number in range(pools):
        rows = pool_rows(context, len(truth), strength, number)
        if not wrong[rows].any():
            continue
        pool = Pool(rows, columns)
        random = np.random.default_rng(context.combined_seed(227, strength, number))
        orders = pool.orders(random)
        for method, places in found.orders.items():
            if number < searched:
                orders[method] = rows[places[number].astype(np.int64)]
        for method, order in orders.items():
            _keep(made, method, figures(wrong[order]) | clusters_found(clusters[order]))
        usual = {method: orders[method] for method in (GINI, OURS)}
        wanted = min(labels, len(rows) // 5)
        drawn = random.choice(len(rows), wanted, replace=False)
        _compare(learnt, wrong, {**_rest(rows, drawn, usual), LEARNT: _learnt(pool, truth, drawn)})
        asked, order = clotho_order(columns["features"][rows], wrong[rows], wanted, random)
        others = {**_rest(rows, asked, usual), LEARNT: _learnt(pool, truth, asked)}
        _compare(chosen, wrong, {**others, CLOTHO: rows[order]})
    return {
        "inputs": len(truth),
        "faults": int(wrong.sum()),
        "clusters": len(set(clusters.tolist()) - {NOISE}),
        "orders": made,
        "after labels": learnt,
        "after Clotho's labels": chosen,
    }


def _learnt(pool: Pool, truth: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the rows without labels in the order that is learnt from those with labels."""
    known = {int(place): int(truth[pool.rows[place]]) for place in places}
    found: np.ndarray = pool.rows[pool.ours(known)]
    return found


def _rest(rows: np.ndarray, places: np.ndarray, orders: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return orders without the inputs that were labelled."""
    gone = rows[places]
    return {method: order[~np.isin(order, gone)] for method, order in orders.items()}


def _compare(onto: dict[str, Figures], wrong: np.ndarray, orders: Mapping[str, np.ndarray]) -> None:
    """Keep figures of orders of the same inputs, if a fault is among them."""
    if wrong[orders[LEARNT]].any():
        for method, order in orders.items():
            _keep(onto, method, figures(wrong[order]))


def _keep(onto: dict[str, Figures], method: str, found: Mapping[str, float]) -> None:
    own = onto.setdefault(method, {})
    for name, figure in found.items():
        own.setdefault(name, []).append(round(figure, _DIGITS))
