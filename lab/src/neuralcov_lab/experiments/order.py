"""``order``: one suite in many orders and batch sizes, and how far each criterion's value moves."""

from __future__ import annotations

from typing import Any

from neuralcov.core.criterion import ORDER_FREE, SPLIT_FREE
from neuralcov_lab.experiments.cells import Cell
from neuralcov_lab.experiments.panel import Panel, slices
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import AnyCriterion
from neuralcov_lab.experiments.subjects import activations_of_test, image_panel
from neuralcov_lab.experiments.workbench import Workbench

NAME = "order"


def plan(scale: Scale) -> list[Cell]:
    """Criteria that care for order or batches in all orders and sizes; the others in two, to see that they do not."""
    network = scale.networks[0]
    work = scale.order_inputs * len(scale.order_batches)
    return [
        Cell(
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


def orders(bench: Workbench, network: str, dependent: bool) -> dict[str, Any]:
    """Values on the suite alone, by criterion and batch size, one per order; the first is the suite's own."""
    panel, scale = image_panel(bench, network), bench.scale
    criteria = [criterion for criterion in panel.criteria if _cares(criterion) == dependent]
    sizes = scale.order_batches if dependent else scale.order_batches[:2]
    count = scale.orders if dependent else 2
    values: dict[str, dict[str, list[float]]] = {criterion.name: {} for criterion in criteria}
    for size in sizes:
        for number in range(count):
            for name, value in _values(bench, panel, network, criteria, size, number).items():
                values[name].setdefault(str(size), []).append(value)
    return {
        "values": values,
        "inputs": min(scale.order_inputs, activations_of_test(bench, network).size),
        "orders": count,
    }


def _values(
    bench: Workbench, panel: Panel, network: str, criteria: list[AnyCriterion], size: int, number: int
) -> dict[str, float]:
    suite = activations_of_test(bench, network)
    wanted = min(bench.scale.order_inputs, suite.size)
    if number == 0:
        return panel.values_of(slices(suite.take(slice(0, wanted)), size), criteria, size)
    return panel.values_of(slices(suite, size, bench.rows(wanted, wanted, 17, number)), criteria, size)


def _cares(criterion: AnyCriterion) -> bool:
    return not {ORDER_FREE, SPLIT_FREE} <= criterion.promises
