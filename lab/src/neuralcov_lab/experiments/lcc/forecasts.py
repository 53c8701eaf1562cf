"""``lcc.forecast``: does a part of a test set foretell what more of it will cover?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from neuralcov import KMNC, LCC, NC, SNAC, Activations, Coverage
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.orders import rounded
from neuralcov_lab.experiments.lcc.subjects import proof_subject
from neuralcov_lab.experiments.measuring import CalibratedCriteria, quiet, slices
from neuralcov_lab.experiments.settings import AnyCriterion

PARTS, TIMES, LEAST = (20, 10, 4), (2, 4, 10), 20


def counting() -> list[AnyCriterion]:
    """Return criteria that count kinds or cells, and so can say what more inputs would show."""
    return [LCC(), KMNC(100, errors=True), NC(0.75, errors=True), SNAC(errors=True)]


def forecasts(context: ExperimentContext, subject: str, splits: int) -> dict[str, Any]:
    """Return, by part and by how many times as many inputs: values now, what was said, and what was seen."""
    found = proof_subject(context, subject)
    criteria = found.learn(context, counting())
    activations = criteria.keep(found.batches(found.test, context.scale.batch))
    count = activations.size
    parts: dict[str, Any] = {}
    for first in sorted({count // part for part in PARTS if count // part >= LEAST}):
        sizes = [first * times for times in TIMES if first * times <= count]
        for split in range(splits):
            order = context.rows(count, count, 103, split)
            for size, by_name in _grown(criteria, found.model, activations, order, first, sizes, context).items():
                for name, figures in by_name.items():
                    kept = parts.setdefault(str(first), {}).setdefault(str(size), {}).setdefault(name, {})
                    for figure, value in figures.items():
                        kept.setdefault(figure, []).append(rounded(value))
    return {"parts": parts, "test": count, "splits": splits}


def _grown(
    criteria: CalibratedCriteria,
    model: Any,
    activations: Activations,
    order: Tensor,
    first: int,
    sizes: list[int],
    context: ExperimentContext,
) -> dict[int, dict[str, dict[str, float]]]:
    """Observe one split's first part, ask, and go on."""
    coverage = Coverage(model, criteria.criteria)
    found: dict[int, dict[str, dict[str, float]]] = {}
    with quiet():
        seen = 0
        for size in (first, *sizes):
            for batch in slices(activations, context.scale.batch, order[seen:size]):
                coverage.update(activations=batch)
            seen, values = size, coverage.values(warn=False)
            if size == first:
                now, said = values, {ahead: coverage.forecast(ahead) for ahead in sizes}
            else:
                found[size] = {
                    name: {"now": now[name], "said": said[size][name], "seen": values[name]} for name in said[size]
                }
    return found
