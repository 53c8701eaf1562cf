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


# So many inputs tell how much each adds to a state.
_MANY = 10_000


@dataclass(frozen=True)
class Workload:
    """Say how much there will be to measure.

    Args:
        inputs: in the suite.
        training_inputs: to learn from.
        classes: that the model tells apart.
    """

    inputs: int = _MANY
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


class GrowthLimit:
    """Refuse further inputs once a state that grows with them takes what its criterion's ``memory=`` allows.

    A state is looked at only when it may have come to that, by the most that every input adds. Where ``memory=`` says
    how much of the training data is kept and the rest goes to disk, it does not limit the state.

    Args:
        criteria: those of a coverage.
        layout: its layers.
    """

    def __init__(self, criteria: Sequence[Criterion[Any]], layout: Layout) -> None:
        self._layout = layout
        self._limits: list[tuple[int, Criterion[Any], int, float]] = []
        for place, criterion in enumerate(criteria):
            cost = cost_of(criterion, layout, Workload(inputs=_MANY))
            if cost.grows and not (cost.to_disk and cost.gathered):
                each = (cost.state - criterion.cost(layout.to("meta"), Workload(inputs=0)).state) / _MANY
                self._limits.append((place, criterion, parse_bytes(criterion.memory), each))
        self._room = [0.0] * len(self._limits)

    @property
    def looks(self) -> bool:
        """Return whether the next inputs make it look at a state."""
        return any(room <= 0 for room in self._room)

    def require(self, states: Sequence[Any], inputs: int) -> None:
        """Refuse so many more inputs if a state has no room left.

        Args:
            states: one per criterion.
            inputs: how many are about to be observed.
        """
        for index, (place, criterion, limit, each) in enumerate(self._limits):
            if self._room[index] <= 0:
                size = tensor_bytes(states[place])
                if size > limit:
                    raise MemoryBudgetError(_outgrown(criterion, self._layout, size, limit))
                self._room[index] = limit - size
            self._room[index] -= inputs * each


def _outgrown(criterion: Criterion[Any], layout: Layout, size: int, limit: int) -> str:
    # What the others would take without it, since some criteria look at pairs of layers.
    others = {
        layer: cost_of(criterion, Layout({name: width for name, width in layout.widths.items() if name != layer})).state
        for layer in layout.widths
    }
    name = min(others, key=others.__getitem__)
    alike = max(others.values()) == others[name]
    most = "" if alike else f", most of it for layer {name!r} ({layout.widths[name]:,} neurons)"
    leave = "" if alike else f"leave wide layers out, for example with layers='!{name}', "
    return (
        f"{criterion.name}: the state has grown to {show_bytes(size)}{most}, but memory={criterion.memory!r} allows "
        f"{show_bytes(limit)}, so that no more inputs are observed: {leave}raise memory=, or leave this criterion out"
    )


def largest_layer(criterion: Criterion[Any], layout: Layout) -> tuple[str, int]:
    """Return the layer that takes most, and how much it alone takes."""
    alone = {width: cost_of(criterion, Layout({"layer": width})).at_once for width in set(layout.widths.values())}
    name = max(layout.widths, key=lambda layer: alone[layout.widths[layer]])
    return name, alone[layout.widths[name]]


def _refusal(criterion: Criterion[Any], layout: Layout, cost: Cost, limit: str, advice: str) -> str:
    name, alone = largest_layer(criterion, layout)
    several = f" and {len(layout) - 1} more" if len(layout) > 1 else ""
    of_it = f", {show_bytes(alone)} of it this layer alone" if several else ""
    given = criterion.parameters
    classes = ", leave classes= out" if given.get("classes") else ""
    sketch = ", give sketch= a number of directions" if given.get("sketch", 0) is None and not cost.grows else ""
    return (
        f"{criterion.name}: layer {name!r} ({layout.widths[name]:,} neurons){several} would take "
        f"{show_bytes(cost.at_once)}{of_it}, but {limit}: leave wide layers out, for example with "
        f"layers='!{name}'{classes}{sketch}, {advice}, or measure them by another criterion; "
        "`neuralcov layers MODEL --cost` shows what each takes"
    )
