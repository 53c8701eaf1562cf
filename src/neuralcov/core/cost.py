"""What criteria will take in memory for some layers: told before anything is allocated, and refused if it cannot fit.

States of a fixed size are counted on the meta device, which allocates nothing, so that their cost is exact. Those that
grow with what inputs show are counted at their largest: as if every input showed a kind of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from neuralcov.core.errors import MemoryBudgetError
from neuralcov.core.layout import Layout
from neuralcov.core.memory import available_bytes, parse_bytes, show_bytes
from neuralcov.core.records import map_tensors

if TYPE_CHECKING:
    from neuralcov.core.criterion import Criterion


@dataclass(frozen=True)
class Workload:
    """Say how much there will be to measure.

    Args:
        inputs: in the suite.
        training_inputs: to learn from.
        classes: that the model tells apart.
    """

    inputs: int = 10_000
    training_inputs: int = 50_000
    classes: int = 10


@dataclass(frozen=True)
class Cost:
    """Hold how many bytes a criterion takes.

    Args:
        state: the state after all inputs.
        learnt: what calibration teaches the criterion beside what is gathered.
        gathered: what is gathered of training data; kept until the coverage goes.
        working: tensors for a moment, beside all this, at the most.
        grows: whether the state begins with next to nothing and ``state`` is the most that it may come to.
        to_disk: whether what is gathered goes to disk where it exceeds ``memory=``.
    """

    state: int
    learnt: int = 0
    gathered: int = 0
    working: int = 0
    grows: bool = False
    to_disk: bool = False

    @property
    def at_once(self) -> int:
        """How much is taken from the first input on, whatever the inputs show."""
        lasting = 0 if self.grows else self.state
        return lasting + self.working + (0 if self.to_disk else self.learnt + self.gathered)


def tensor_bytes(tree: Any) -> int:
    """Return the bytes of all tensors of a record, wherever they are.

    >>> import torch
    >>> tensor_bytes((torch.zeros(2, 3, device="meta"), (torch.zeros(5, dtype=torch.bool), None)))
    29
    """
    found: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        found.append(tensor.numel() * tensor.element_size())
        return tensor

    map_tensors(count, tree)
    return sum(found)


def cost_of(criterion: Criterion[Any], layout: Layout, workload: Workload | None = None) -> Cost:
    """Return what a criterion takes for some layers, without allocating any of it."""
    meta, load = layout.to("meta"), workload or Workload()
    found = criterion.cost(meta, load)
    statistics = [statistic.cost(meta, load) for statistic in criterion.learns]
    return replace(found, gathered=sum(statistics))


def require_memory(criteria: Sequence[Criterion[Any]], layout: Layout) -> None:
    """Refuse layers for which a criterion would take more than its ``memory=`` allows, or all more than there is."""
    costs = {criterion: cost_of(criterion, layout) for criterion in criteria}
    for criterion, cost in costs.items():
        if cost.at_once > parse_bytes(criterion.memory):
            limit = f"memory={criterion.memory!r} allows {show_bytes(parse_bytes(criterion.memory))}"
            raise MemoryBudgetError(_refusal(criterion, layout, cost, limit, "raise memory="))
    # Where training data taught several criteria the same, it is there once; so no more than this is needed.
    needed, there = sum(cost.state for cost in costs.values() if not cost.grows), available_bytes(layout.device)
    if there is not None and needed > there:
        criterion = max(costs, key=lambda one: costs[one].at_once)
        together = f" (with the others {show_bytes(needed)})" if len(costs) > 1 else ""
        limit = f"{layout.device} has {show_bytes(there)} left{together}"
        raise MemoryBudgetError(_refusal(criterion, layout, costs[criterion], limit, "leave this criterion out"))


def largest_layer(criterion: Criterion[Any], layout: Layout) -> tuple[str, int]:
    """Return the layer that takes most, and how much it alone takes."""
    alone = {width: cost_of(criterion, Layout({"layer": width})).at_once for width in set(layout.widths.values())}
    name = max(layout.widths, key=lambda layer: alone[layout.widths[layer]])
    return name, alone[layout.widths[name]]


def _refusal(criterion: Criterion[Any], layout: Layout, cost: Cost, limit: str, advice: str) -> str:
    name, alone = largest_layer(criterion, layout)
    several = f" and {len(layout) - 1} more" if len(layout) > 1 else ""
    of_it = f", {show_bytes(alone)} of it this layer alone" if several else ""
    classes = ", leave classes= out" if criterion.parameters.get("classes") else ""
    return (
        f"{criterion.name}: layer {name!r} ({layout.widths[name]:,} neurons){several} would take "
        f"{show_bytes(cost.at_once)}{of_it}, but {limit}: leave wide layers out, for example with "
        f"layers='!{name}'{classes}, {advice}, or measure them by another criterion; "
        "`neuralcov layers MODEL --cost` shows what each takes"
    )
