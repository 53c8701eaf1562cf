"""``lcc.next``, ``lcc.relative`` and ``lcc.errors``: do the figures beside LCC's value keep what they promise?"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.figures import Measure, median
from neuralcov_lab.experiments.lcc.maps import DIRECTIONS, Cut, Map
from neuralcov_lab.experiments.lcc.orders import calibration_rows, rounded
from neuralcov_lab.experiments.lcc.projections import Projections, project
from neuralcov_lab.experiments.lcc.subjects import proof_subject

AFTER = (100, 1_000)
SIZES = (50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
CALIBRATIONS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
BEYOND = 5_000
FRESH, TEST = "fresh training inputs", "test set"


def foretold(context: ExperimentContext, subject: str, splits: int) -> dict[str, Any]:
    """Split the test set at random: what ``next`` of the first part says, and what the next inputs show."""
    training, test = placed(context, subject)
    measure = _measure(training, test)
    count = len(test)
    found: dict[str, Any] = {}
    for first in sorted({count // part for part in (50, 20, 10, 5, 2)}):
        after = [wanted for wanted in AFTER if first + wanted <= count]
        if first < 10 or not after:
            continue
        lists: dict[str, list[float]] = {"said": [], **{str(wanted): [] for wanted in after}}
        said_by_layer, seen_by_layer = [], []
        for split in range(splits):
            order = context.rows(count, count, 53, split)
            counts = measure.suite.counts(order[:first])
            said = ((counts == 1).sum(1).double() / counts.sum(1).clamp(min=1)).cpu()
            lists["said"].append(rounded(median(said)))
            for wanted in after:
                seen = measure.fresh(order[:first], order[first : first + wanted])
                lists[str(wanted)].append(rounded(median(seen)))
            said_by_layer.append(said)
            seen_by_layer.append(seen)
        found[str(first)] = {
            **lists,
            "layers said": _plain(torch.stack(said_by_layer).mean(0)),
            "layers seen": _plain(torch.stack(seen_by_layer).mean(0)),
        }
    return {"splits": found, "test": count}


def relatives(context: ExperimentContext, subject: str, draws: int) -> dict[str, Any]:
    """Return ``relative`` of fresh training inputs and of test sets by their size and that of the calibration."""
    training, test = placed(context, subject)
    total = len(training)
    order = calibration_rows(context, total, total)
    found: dict[str, Any] = {}
    for number in sorted({*(n for n in CALIBRATIONS if n < total), total}):
        ground = Map.learn(training.take(order[:number]), Cut())
        largest = number * 10 if number <= BEYOND else number
        own: dict[str, Any] = {}
        for name, suite in ((FRESH, training.take(order[number:])), (TEST, test)):
            if len(suite) >= SIZES[0]:
                own[name] = _by_size(context, Measure(ground, ground.place(suite)), min(largest, len(suite)), draws)
        found[str(number)] = own | {"expected off map": rounded(median(ground.fresh.off_map.cpu()))}
    return {"calibrations": found, "draws of each": draws}


def _by_size(context: ExperimentContext, measure: Measure, largest: int, draws: int) -> dict[str, Any]:
    count = len(measure.suite)
    found = {}
    for size in sorted({*(n for n in SIZES if n < largest), largest}):
        figures = [
            measure.figures(context.rows(count, size, 59, size, draw)) for draw in range(draws if size < count else 1)
        ]
        found[str(size)] = {
            "relative": [rounded(one.relative) for one in figures],
            "in parts": [rounded(one.relative_in_parts) for one in figures],
            "off map": rounded(sum(one.off_map for one in figures) / len(figures)),
        }
    return found


def errors(context: ExperimentContext, subject: str, draws: int) -> dict[str, Any]:
    """Compare jackknife errors of value and ``relative`` with how far pairs of draws without shared inputs differ."""
    training, test = placed(context, subject)
    order = calibration_rows(context, len(training), len(training))
    half = len(training) // 2
    ground = Map.learn(training.take(order[:half]), Cut())
    found: dict[str, Any] = {}
    for name, suite in ((FRESH, training.take(order[half:])), (TEST, test)):
        measure, count = Measure(ground, ground.place(suite)), len(suite)
        own = {}
        for size in (n for n in SIZES if 4 * n <= count and n <= 2_000):
            pairs = []
            for draw in range(draws):
                rows = context.rows(count, 2 * size, 61, size, draw)
                pairs.append([_with_errors(measure, part) for part in (rows[:size], rows[size:])])
            own[str(size)] = {"value": _covered(pairs, 0), "relative": _covered(pairs, 2)}
        found[name] = own
    return {"suites": found, "calibration": half, "pairs": draws}


def _covered(pairs: list[list[list[float]]], place: int) -> dict[str, float]:
    """Return how far draws differ, the error they are given, and how often twice the error is enough.

    Enough for the mean over all draws, and for the difference between two draws that share no input.
    """
    values = torch.tensor([[draw[place] for draw in pair] for pair in pairs], dtype=torch.float64)
    stated = torch.tensor([[draw[place + 1] for draw in pair] for pair in pairs], dtype=torch.float64)
    middle = values.mean()
    apart, allowed = (values[:, 0] - values[:, 1]).abs(), 2 * stated.square().sum(1).sqrt()
    return {
        "mean": rounded(float(middle)),
        "deviation": rounded(float(values.std())),
        "error": rounded(float(stated.mean())),
        "covers mean": float(((values - middle).abs() <= 2 * stated).double().mean()),
        "covers pairs": float((apart <= allowed).double().mean()),
    }


def _with_errors(measure: Measure, rows: Tensor) -> list[float]:
    figures, error = measure.figures(rows), measure.errors(rows)
    return [figures.value, error.value, figures.relative, error.relative]


def placed(context: ExperimentContext, subject: str) -> tuple[Projections, Projections]:
    """Return training data and test set, projected along the definition's directions."""

    def make() -> tuple[Projections, Projections]:
        found = proof_subject(context, subject)
        criteria = found.reader(context)
        training, test = (
            project(criteria.run(found.batches(samples, context.scale.batch)), [DIRECTIONS])
            for samples in (found.train, found.test)
        )
        return training, test

    return context.prepare(("placed", subject), make)


def _measure(training: Projections, test: Projections) -> Measure:
    ground = Map.learn(training, Cut())
    return Measure(ground, ground.place(test))


def _plain(values: Tensor) -> list[float]:
    return [rounded(value) for value in values.tolist()]
