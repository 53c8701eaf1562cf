"""``lcc.orders``: ground-truth orders under LCC, its variants, and other criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from neuralcov import KMNC, LCC, LVC, NC, NLC, SNAC, Activations
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.figures import OVER, Measure
from neuralcov_lab.experiments.lcc.maps import Cut, Map
from neuralcov_lab.experiments.lcc.pools import Pool
from neuralcov_lab.experiments.lcc.projections import Directions, Projections, project
from neuralcov_lab.experiments.lcc.subjects import ProofSubject, proof_plan, proof_subject
from neuralcov_lab.experiments.lcc.variants import Variant, variants
from neuralcov_lab.experiments.measuring import slices
from neuralcov_lab.experiments.settings import AnyCriterion

Values = dict[str, dict[str, dict[int, float]]]
CALIBRATION_ROWS = 47


def others() -> list[AnyCriterion]:
    """Return the criteria that LCC is compared with."""
    return [KMNC(100), NC(0.75), SNAC(), LVC(), NLC()]


def orders(context: ExperimentContext, subject: str, draws: int, part: int = 1) -> dict[str, Any]:
    """Return every order with, by criterion and variant, the draws in which it came out, and means of all values."""
    found = proof_subject(context, subject, part)
    plan = proof_plan(context, found, draws)
    judge = Judge(context, found)
    values: Values = {}
    for pool in plan.pools():
        for suite, by_name in judge.values(pool).items():
            for name, by_draw in by_name.items():
                values.setdefault(suite, {}).setdefault(name, {}).update(by_draw)
    judged = [
        {
            "group": order.group,
            "above": order.above,
            "below": order.below,
            "right": {name: _right(values, order.above, order.below, name) for name in judge.names},
        }
        for order in plan.orders
    ]
    means = {
        suite: {name: rounded(sum(by.values()) / len(by)) for name, by in by_name.items()}
        for suite, by_name in values.items()
    }
    return {
        "orders": judged,
        "draws of each": draws,
        "means": means,
        "library": _checked(context, found, judge),
        "training": len(found.train),
        "test": len(found.test),
        "layers": len(judge.training.widths),
        "neurons": sum(judge.training.widths.values()),
    }


def _right(values: Values, above: str, below: str, name: str) -> str:
    """Return a sign per draw: + if it puts one suite above the other, = for a tie, - if below."""
    first, second = values[above][name], values[below][name]
    shared = sorted(set(first) & set(second))
    return "".join(
        "+" if first[draw] > second[draw] else "=" if first[draw] == second[draw] else "-" for draw in shared
    )


def _checked(context: ExperimentContext, subject: ProofSubject, judge: Judge) -> dict[str, list[float]]:
    """Return what the library and the lab say of the test set, which must be the same."""
    batches = subject.batches(subject.test, context.scale.batch)
    reading = subject.learn(context, [LCC()]).measure(batches)[-1]
    ground = judge.definition
    figures = Measure(ground, ground.place(judge.project(batches))).figures()
    beside = reading["beside"]["LCC"]
    return {
        "value": [reading["own"]["LCC"], figures.value],
        **{name: [beside[name], getattr(figures, name)] for name in ("relative", "off_map", "next")},
    }


class Judge:
    """Measure suites under LCC's variants, from projections, and under other criteria, from activations.

    Args:
        context: device and seed.
        subject: the network and its data.
        some: the variants; by default all.
        beside: the other criteria; by default ``others``.
    """

    def __init__(
        self,
        context: ExperimentContext,
        subject: ProofSubject,
        some: Sequence[Variant] | None = None,
        beside: Sequence[AnyCriterion] | None = None,
    ) -> None:
        self.subject, self._batch = subject, context.scale.batch
        self.variants = tuple(variants(len(subject.train)) if some is None else some)
        self._directions = tuple(dict.fromkeys(variant.cut.directions for variant in self.variants))
        beside = others() if beside is None else beside
        self._criteria = subject.learn(context, beside)
        self.names = [variant.name for variant in self.variants] + [criterion.name for criterion in beside]
        self.training = self.project(subject.batches(subject.train, self._batch))
        self._maps = _maps(context, self.training, self.variants)

    @property
    def definition(self) -> Map:
        """The map of the definition, on all training inputs."""
        return self._maps[Cut(), None]

    def project(self, batches: Any, directions: Sequence[Directions] | None = None) -> Projections:
        """Run the network and project."""
        return project(self._criteria.run(batches), directions or self._directions)

    def values(self, pool: Pool) -> Values:
        """Return, by suite, name and draw, the values of a pool's suites."""
        activations = self._criteria.keep(pool.batches())
        placed = project(slices(activations, self._batch), self._directions)
        found: Values = {suite: {name: {} for name in self.names} for suite in pool.suites}
        for key, ground in self._maps.items():
            chosen = [variant for variant in self.variants if (variant.cut, variant.training) == key]
            measure = Measure(ground, ground.place(placed), [variant.weighting for variant in chosen])
            for suite, by_draw in pool.suites.items():
                for draw, rows in by_draw.items():
                    for variant, layers in zip(chosen, measure.layers(rows), strict=True):
                        found[suite][variant.name][draw] = OVER[variant.over](layers)
        for suite, by_draw in pool.suites.items():
            shared: dict[str, float] | None = None
            for draw, rows in by_draw.items():
                if rows is None and shared is not None:
                    own = shared
                else:
                    own = self._beside(activations, rows)
                    shared = own if rows is None else None
                for name, value in own.items():
                    found[suite][name][draw] = value
        return found

    def _beside(self, activations: Activations, rows: Tensor | None) -> dict[str, float]:
        return self._criteria.values_of(slices(activations, self._batch, rows))


def _maps(
    context: ExperimentContext, training: Projections, some: Sequence[Variant]
) -> Mapping[tuple[Cut, int | None], Map]:
    maps: dict[tuple[Cut, int | None], Map] = {}
    for variant in some:
        key = (variant.cut, variant.training)
        if key not in maps:
            rows = None if variant.training is None else calibration_rows(context, len(training), variant.training)
            maps[key] = Map.learn(training if rows is None else training.take(rows), variant.cut)
    return maps


def calibration_rows(context: ExperimentContext, count: int, wanted: int) -> Tensor:
    """Return the training inputs of a smaller calibration; smaller ones are the beginnings of larger ones."""
    return context.rows(count, wanted, CALIBRATION_ROWS)


def rounded(value: float) -> float:
    """Return a number with six figures, which is what files keep."""
    return float(f"{value:.6g}")
