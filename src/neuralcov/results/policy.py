"""What is asked of a suite: thresholds and what they rest on, alarms that may stand, and waivers that expire."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from neuralcov.results.places import CLASS, Place, PlacedGate

ALL = "*"
MIN, MAX, MAX_DROP = "min", "max", "max_drop"
ALLOW, WAIVE = "allow_alarm", "waive"
ASKS = (MIN, MAX, MAX_DROP, ALLOW, WAIVE)
"""What a row of thresholds in evidence may ask."""


@dataclass(frozen=True)
class Waiver:
    """Excuse a check until a date: that of a figure, those in a place, or that of a figure in a place.

    Args:
        gate: the figure, or ``alarm:NAME``, whose check is waived; ``None`` for all checks in a place.
        reason: why.
        owner: who answers for it.
        expires: the last day it holds.
        never_seen: a class of training data that need not occur, nor meet what is asked of it.
        place: the layer, class or slice where checks are waived; without it, those of the whole suite are.
    """

    gate: str | None
    reason: str
    owner: str
    expires: datetime.date
    never_seen: int | None = None
    place: Place | None = None

    @property
    def where(self) -> Place | None:
        """Where it holds; ``None`` for the whole suite."""
        return Place(CLASS, str(self.never_seen)) if self.never_seen is not None else self.place

    @property
    def subject(self) -> str:
        """What is waived, in words."""
        where = self.where
        return " ".join([*([] if self.gate is None else [self.gate]), *([] if where is None else [f"[{where}]"])])

    def excuses(self, figure: str, place: Place | None) -> bool:
        """Return whether it is about a check of a figure in a place."""
        where = self.where
        if self.gate is None and where is None:
            return False
        there = place is None if where is None else place is not None and where.covers(place)
        return there and self.gate in (None, figure)


@dataclass(frozen=True)
class Basis:
    """Tell what a threshold rests on: the id of a requirement, and why this number; ``None`` where nobody said."""

    requirement: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Policy:
    """Hold what is asked of a suite.

    Args:
        least: figure → what it must reach.
        most: figure → what it must not exceed.
        drops: figure → the share by which it may fall below the baseline; ``*`` for every criterion.
        allowed: alarm → why it may stand.
        waivers: checks that need not be met for a while.
        placed: what is asked of layers, classes and slices.
        bases: (``min``, ``max`` or ``max_drop``; figure) → what the threshold rests on.
    """

    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    drops: Mapping[str, float] = field(default_factory=dict)
    allowed: Mapping[str, str] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    placed: tuple[PlacedGate, ...] = ()
    bases: Mapping[tuple[str, str], Basis] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self.least or self.most or self.drops or self.placed)

    def basis(self, asks: str, figure: str) -> Basis:
        """Return what a threshold rests on; a limit on one drop rests on that of all drops where nothing is said."""
        found = self.bases.get((asks, figure))
        if found is None and asks == MAX_DROP:
            found = self.bases.get((asks, ALL))
        return Basis() if found is None else found

    def joined(self, other: Policy) -> Policy:
        """Return both together; where they disagree, the other decides."""
        limits = {MIN: other.least, MAX: other.most, MAX_DROP: other.drops}
        # A number that was replaced takes what it rested on along.
        kept = {key: basis for key, basis in self.bases.items() if key[1] not in limits[key[0]]}
        return Policy(
            {**self.least, **other.least},
            {**self.most, **other.most},
            {**self.drops, **other.drops},
            {**self.allowed, **other.allowed},
            (*self.waivers, *other.waivers),
            (*self.placed, *other.placed),
            {**kept, **other.bases},
        )
