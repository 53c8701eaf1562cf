"""``neuralcov layers --cost``: what criteria will take in memory for some layers, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from neuralcov.core.cost import Cost, Workload, cost_of, largest_layer
from neuralcov.core.counted import counted
from neuralcov.core.criterion import Criterion
from neuralcov.core.layout import Layout
from neuralcov.core.memory import available_bytes, parse_bytes, show_bytes
from neuralcov.tap.rows import without


def cost_table(criteria: Sequence[Criterion[Any]], layout: Layout, workload: Workload) -> tuple[Table, list[str]]:
    """Return a table of what each criterion takes, and sentences about those that have no room.

    Args:
        criteria: to tell of.
        layout: the layers.
        workload: how much there will be to measure.
    """
    table = Table(
        title=(
            f"{counted(workload.inputs, 'input')}, "
            f"{counted(workload.training_inputs, 'training input')}, {counted(workload.classes, 'class')}"
        ),
        title_justify="left",
    )
    table.add_column("criterion")
    for column in ("state", "learnt", "training data", "working", "largest layer"):
        table.add_column(column, justify="right")
    said = []
    for criterion in criteria:
        cost = cost_of(criterion, layout, workload)
        name, alone = largest_layer(criterion, layout)
        share = "–" if cost.grows else f"{name} {show_bytes(alone)}"
        gathered = f"{show_bytes(cost.gathered)}{' *' if cost.to_disk and cost.gathered else ''}"
        state = f"{'≤ ' if cost.grows else ''}{show_bytes(cost.state)}"
        table.add_row(criterion.name, state, _shown(cost.learnt), gathered, _shown(cost.working), share)
        said += _without_room(criterion, cost, name, layout)
    said.append("≤: at the most, if every input shows a kind of its own; *: on disk beyond memory=")
    return table, said


def _like(name: str, layout: Layout) -> list[str]:
    """Return globs of all layers as wide as one, as far as their last names tell them from others."""
    wide = [layer for layer, width in layout.widths.items() if width == layout.widths[name]]
    if len(wide) == 1:
        return wide
    last = dict.fromkeys(layer.rpartition(".")[2] for layer in wide)
    return [f"*.{part}" if part and not part.isdigit() else name for part in last][:4]


def _shown(amount: int) -> str:
    return show_bytes(amount) if amount else "–"


def _without_room(criterion: Criterion[Any], cost: Cost, name: str, layout: Layout) -> list[str]:
    """Say that a criterion will be refused, if it will be."""
    allowed, there = parse_bytes(criterion.memory), available_bytes(layout.device)
    if cost.at_once > allowed:
        limit = f"memory={criterion.memory!r} allows"
    elif there is not None and cost.at_once > there:
        limit = f"{show_bytes(there)} that {layout.device} has left allow"
    else:
        return []
    return [
        f"{criterion.name} takes {show_bytes(cost.at_once)}, more than {limit}, and will be refused: leave wide layers "
        f"out (--layers '{without(_like(name, layout))}'), or measure by another criterion"
    ]
