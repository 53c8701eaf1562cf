"""Which layers there are, how wide, and how layers of one width are stacked to be worked on at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.counted import counted
from neuralcov.core.errors import LayerError, MismatchError
from neuralcov.core.shapes import Shaped


@dataclass(frozen=True)
class LayerShape:
    """Describe one layer: its number of neurons and the device on which its statistics live."""

    neurons: int
    device: torch.device


@dataclass(frozen=True)
class LayerGroup:
    """Name layers of one width. Statistics of a group are one tensor, so that one call serves all of them."""

    width: int
    names: tuple[str, ...]
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)


def group_by_width(widths: Mapping[str, int]) -> tuple[LayerGroup, ...]:
    """Return the layers of each width, widths in the order in which they first occur."""
    members: dict[int, list[tuple[int, str]]] = {}
    for position, (name, width) in enumerate(widths.items()):
        members.setdefault(width, []).append((position, name))
    return tuple(
        LayerGroup(width, tuple(n for _, n in layers), tuple(p for p, _ in layers)) for width, layers in members.items()
    )


def in_execution_order(
    widths: Sequence[int], per_group: Sequence[Shaped[Tensor, "_ ..."]]
) -> Shaped[Tensor, "layers ..."]:
    """Put rows that stand by group, one row a layer, back into the order of ``widths``."""
    groups = group_by_width({str(position): width for position, width in enumerate(widths)})
    stacked = torch.tensor([position for group in groups for position in group.positions])
    rows = torch.cat(list(per_group))
    return rows[stacked.argsort().to(rows.device)]


class Layout(Mapping[str, LayerShape]):
    """Map layer names to ``LayerShape``, in execution order, as fixed by the first batch.

    Examples:
        >>> layout = Layout({"conv": 8, "fc1": 4, "fc2": 4})
        >>> layout.neurons
        16
        >>> [(group.width, group.names) for group in layout.groups]
        [(8, ('conv',)), (4, ('fc1', 'fc2'))]
    """

    def __init__(self, widths: Mapping[str, int], device: torch.device | str = "cpu") -> None:
        if not widths:
            raise LayerError("no layers: at least one is needed to measure coverage")
        for name, width in widths.items():
            if isinstance(width, bool) or not isinstance(width, int) or width < 1:
                raise LayerError(f"layer {name!r} has {width!r} neurons: expected a whole number of at least 1")
        self.widths: Mapping[str, int] = dict(widths)
        self.device = torch.device(device)

    def __getitem__(self, name: str) -> LayerShape:
        return LayerShape(self.widths[name], self.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self.widths)

    def __len__(self) -> int:
        return len(self.widths)

    def __repr__(self) -> str:
        return f"Layout({counted(len(self), 'layer')}, {counted(self.neurons, 'neuron')}, {self.device})"

    @cached_property
    def neurons(self) -> int:
        """Return the total number of neurons, the N of the definitions."""
        return sum(self.widths.values())

    @cached_property
    def groups(self) -> tuple[LayerGroup, ...]:
        """Return the layers stacked by width; every per-group tuple of a state follows this order."""
        return group_by_width(self.widths)

    def to(self, device: torch.device | str) -> Layout:
        """Return the same layers with statistics on another device."""
        return Layout(self.widths, device)

    def require_same(self, other: Layout, what: str) -> None:
        """Refuse ``other`` unless it has the same layers, naming the first difference."""
        if list(self.widths.items()) == list(other.widths.items()):
            return
        for name, width in self.widths.items():
            if name not in other.widths:
                raise MismatchError(f"{what} lacks layer {name!r}, which this coverage has")
            if other.widths[name] != width:
                raise MismatchError(
                    f"layer {name!r} has {counted(other.widths[name], 'neuron')} in {what} but {width} in this coverage"
                )
        extra = [name for name in other.widths if name not in self.widths]
        if extra:
            raise MismatchError(f"{what} has layer {extra[0]!r}, which this coverage lacks")
        raise MismatchError(f"{what} has the same layers as this coverage, but in another order")

    def require_modules(self, widths: Mapping[str, int], what: str) -> None:
        """Refuse a model whose modules are known to have other widths than the layers ``what`` holds."""
        for name, width in widths.items():
            if name in self.widths and self.widths[name] != width:
                raise MismatchError(
                    f"layer {name!r} has {counted(self.widths[name], 'neuron')} in {what} but {width} in the model"
                )

    def to_json(self) -> list[list[Any]]:
        """Name and width of each layer, in order."""
        return [[name, width] for name, width in self.widths.items()]
