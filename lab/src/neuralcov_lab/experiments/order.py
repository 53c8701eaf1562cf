"""``order``: one suite in many orders and batch sizes, and how far each criterion's value moves."""

from __future__ import annotations

from typing import Any

from neuralcov.core.criterion import ORDER_FREE, SPLIT_FREE
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import CalibratedCriteria, slices
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import activations_of_test, image_criteria

NAME = "order"


def plan(scale: Scale) -> list[Job]:
    """Criteria that care for order or batches in all orders and sizes; the others in two, to see that they do not."""
    network = scale.networks[0]
    work = scale.order_inputs * len(scale.order_batches)
    return [
        Job(
            name=f"{NAME}.{network}.{'dependent' if dependent else 'free'}",
            experiments=(NAME,),
            compute=orders,
            parameters={"network": network, "dependent": dependent},
            work=work * (scale.orders if dependent else 2),
            rank=20 if dependent else 47,
            kind=f"order {dependent}",
        )
        for dependent in (True, False)
    ]


def orders(context: ExperimentContext, network: str, dependent: bool) -> dict[str, Any]:
    """Values on the suite alone, by criterion and batch size, one per order; the first is the suite's own."""
    calibrated, scale = image_criteria(context, network), context.scale
    criteria = [criterion for criterion in calibrated.criteria if _cares(criterion) == dependent]
    sizes = scale.order_batches if dependent else scale.order_batches[:2]
    count = scale.orders if dependent else 2
    values: dict[str, dict[str, list[float]]] = {criterion.name: {} for criterion in criteria}
    for size in sizes:
        for number in range(count):
            for name, value in _values(context, calibrated, network, criteria, size, number).items():
                values[name].setdefault(str(size), []).append(value)
    return {
        "values": values,
        "inputs": min(scale.order_inputs, activations_of_test(context, network).size),
        "orders": count,
    }


def _values(
    context: ExperimentContext,
    calibrated: CalibratedCriteria,
    network: str,
    criteria: list[AnyCriterion],
    size: int,
    number: int,
) -> dict[str, float]:
    suite = activations_of_test(context, network)
    wanted = min(context.scale.order_inputs, suite.size)
    if number == 0:
        return calibrated.values_of(slices(suite.take(slice(0, wanted)), size), criteria, size)
    return calibrated.values_of(slices(suite, size, context.rows(wanted, wanted, 17, number)), criteria, size)


def _cares(criterion: AnyCriterion) -> bool:
    return not {ORDER_FREE, SPLIT_FREE} <= criterion.promises
