"""Pools of inputs that suites are drawn from, and the orders in which suites should come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from neuralcov_lab.experiments.context import ExperimentContext

ALL, EQUAL, NESTED = "all of it", "at equal size", "nested"


@dataclass(frozen=True)
class Order:
    """Say that one suite should come out above another.

    Args:
        group: what the order is about.
        above: name of the suite that is more varied.
        below: name of the other.
    """

    group: str
    above: str
    below: str

    @property
    def name(self) -> str:
        """What people read."""
        return f"{self.above} > {self.below}"


@dataclass(frozen=True, eq=False)
class Pool:
    """Hold inputs, and the rows of the suites drawn from them; ``None`` for all.

    Args:
        name: what it is.
        batches: makes the inputs anew, ready for the network.
        suites: by name and draw, the rows.
    """

    name: str
    batches: Callable[[], Iterable[Any]]
    suites: Mapping[str, Mapping[int, Tensor | None]]


@dataclass(frozen=True)
class Drawing:
    """Draw rows at random, by the name of a suite and the number of the draw."""

    context: ExperimentContext
    draws: int

    def rows(self, name: str, draw: int, count: int, wanted: int) -> Tensor:
        """Return so many of ``count`` rows."""
        return self.context.rows(count, wanted, 29, crc32(name.encode()) % 10_000_019, draw)

    def suite(self, name: str, count: int, wanted: int) -> dict[int, Tensor | None]:
        """Return every draw of a suite."""
        return {draw: self.rows(name, draw, count, wanted) for draw in range(self.draws)}

    def within(self, name: str, wanted: int, rows: Callable[[int], Tensor]) -> dict[int, Tensor | None]:
        """Return every draw of a suite, each from rows of its own."""
        found: dict[int, Tensor | None] = {}
        for draw in range(self.draws):
            some = rows(draw)
            found[draw] = some[self.rows(name, draw, len(some), wanted)]
        return found


@dataclass(frozen=True)
class Plan:
    """Hold the pools of a subject and the orders among their suites."""

    pools: Callable[[], Iterator[Pool]]
    orders: tuple[Order, ...] = field(default=())


def test_suites(
    draw: Drawing, labels: Tensor, classes: int
) -> tuple[dict[str, Mapping[int, Tensor | None]], list[Order]]:
    """Return suites drawn from the test set alone, and their orders: sizes, classes and duplicates."""
    total = len(labels)
    suites: dict[str, Mapping[int, Tensor | None]] = {"test": dict.fromkeys(range(draw.draws))}
    orders = []
    parts = {"half of test": total // 2, "tenth of test": total // 10, "hundredth of test": max(2, total // 100)}
    for name, wanted in parts.items():
        # Nested: every part is the beginning of the larger one's order.
        suites[name] = draw.suite("nested", total, wanted)
    orders += [Order("sizes", above, below) for above, below in zip(["test", *parts], parts, strict=False)]
    counts = [wanted for wanted in (classes, classes // 2, 2, 1) if wanted]
    counts = sorted(set(counts), reverse=True)

    def rows_of(wanted: int) -> Callable[[int], Tensor]:
        def chosen(number: int) -> Tensor:
            some = draw.rows(f"{wanted} classes", number, classes, wanted).to(labels.device)
            return torch.isin(labels, some).nonzero()[:, 0]

        return chosen

    for fewer in counts[1:]:
        size = min(len(rows_of(fewer)(number)) for number in range(draw.draws)) * 4 // 5
        for more in counts[: counts.index(fewer)]:
            above, below = (f"{wanted} classes, {size}" for wanted in (more, fewer))
            for name, wanted in ((above, more), (below, fewer)):
                suites.setdefault(name, draw.within(name, size, rows_of(wanted)))
            orders.append(Order("classes", above, below))
    size = total // 2
    name, few = f"{size // 10} inputs ten times", size // 10
    suites[f"test, {few * 10}"] = draw.suite(f"test, {few * 10}", total, few * 10)
    suites[name] = {number: draw.rows(name, number, total, few).repeat(10) for number in range(draw.draws)}
    orders.append(Order("duplicates", f"test, {few * 10}", name))
    return suites, orders
