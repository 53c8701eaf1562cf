"""What a statistic is: settings, and a fold over training data whose result criteria learn from.

Write one by subclassing ``Statistic``, as a frozen dataclass of its settings. Defining it registers it. A
criterion asks for it in ``learns`` and finds what it gathered in the calibration, ``calibration[MyStatistic()]``.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import torch

from neuralcov.core.activations import Activations
from neuralcov.core.arguments import format_value
from neuralcov.core.cost import Workload, tensor_bytes
from neuralcov.core.errors import CalibrationError
from neuralcov.core.layout import Layout
from neuralcov.core.records import move, require_declarable
from neuralcov.core.registry import load_offered

Gathered = TypeVar("Gathered")

IGNORED, BESIDE, INSTEAD = "ignored", "beside", "instead"


class Statistic(ABC, Generic[Gathered]):
    """Gather something from training data, in one pass over all of them.

    ``class Rarity(Statistic[RarityRecord], name="acme.rarity")`` declares the name under which files keep it, outside
    this package with a prefix. Equal settings are one statistic, which all criteria that learn from it share. What it
    gathers is a record, or a tuple of records, as states are.
    """

    known: ClassVar[dict[str, type[Statistic[Any]]]] = {}
    declared: ClassVar[str]
    held_out: ClassVar[str] = IGNORED
    """What becomes of held-out inputs: ignored, gathered ``"beside"`` the others, or ``"instead"`` of them."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            require_declarable(cls, name, Statistic.known, "statistic")
            cls.declared = name
            Statistic.known[name] = cls

    @property
    def label(self) -> str:
        """Name and settings, as messages show them and identities are ordered by."""
        settings = [format_value(value) for value in self.settings.values()]
        return self.declared + (f"({', '.join(settings)})" if settings else "")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings by name, as files keep them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(cast(Any, self))}

    def check(self, layout: Layout, owner: str) -> None:
        """Refuse settings that do not fit the layers, in the name of the criterion ``owner``."""
        return

    @abstractmethod
    def init(self, layout: Layout) -> Gathered:
        """Return what is gathered of no input."""

    @abstractmethod
    def observe(self, gathered: Gathered, batch: Activations) -> Gathered:
        """Return what is gathered after a batch; ``gathered`` may be overwritten, since calibration alone holds it."""

    def finish(self, gathered: Gathered) -> Gathered:
        """Return what is gathered after the last batch."""
        return gathered

    def join(self, other: Self) -> Self | None:
        """Return one statistic that serves both, or ``None`` to gather them apart."""
        return None

    def serves(self, other: Statistic[Any]) -> bool:
        """Return whether what this one gathers is what ``other`` asks for."""
        return self == other

    def template(self, layout: Layout) -> tuple[Any, Any]:
        """Return the form of what is gathered, and of nothing gathered, to check files against."""
        form = self.init(layout)
        return form, form

    def cost(self, layout: Layout, workload: Workload) -> int:
        """Return how many bytes is gathered, without allocating any; by default what is gathered of no input.

        Args:
            layout: the layers, on the meta device.
            workload: how much there will be to learn from.
        """
        return tensor_bytes(self.init(layout))

    def move(self, gathered: Gathered, device: torch.device | str) -> Gathered:
        """Return the same on another device."""
        return move(gathered, device)


AnyStatistic = Statistic[Any]


def joined(wanted: Iterable[AnyStatistic]) -> tuple[AnyStatistic, ...]:
    """Return as few statistics as serve all that are wanted, in the order in which they are asked for."""
    found: list[AnyStatistic] = []
    for statistic in wanted:
        for index, other in enumerate(found):
            if type(other) is type(statistic):
                both = other if other == statistic else other.join(statistic)
                if both is not None:
                    found[index] = both
                    break
        else:
            found.append(statistic)
    return tuple(found)


def in_order(learns: Iterable[AnyStatistic]) -> list[AnyStatistic]:
    """Return statistics in an order that does not depend on how a set holds them."""
    return sorted(learns, key=lambda statistic: statistic.label)


def statistic_stored_as(name: str, settings: dict[str, Any]) -> AnyStatistic:
    """Return the statistic that a file names, if it is imported or an installed package offers it."""
    if name not in Statistic.known:
        load_offered()
    if name not in Statistic.known:
        raise CalibrationError(
            f"holds the statistic {name!r}, which no installed package defines: install or import the one that does"
        )
    return cast(AnyStatistic, cast(Any, Statistic.known[name])(**settings))
