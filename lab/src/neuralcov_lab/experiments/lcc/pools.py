"""Pools of inputs that suites are drawn from, and the orders in which suites should come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext

# Copies are as many times as many as the test set, at most.
MULTIPLE = 10
LEAST = 10
Rows = Mapping[int, Tensor | None]


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


@dataclass(frozen=True, eq=False)
class Pool:
    """Hold inputs, and the rows of the suites drawn from them; ``None`` for all.

    Args:
        batches: makes the inputs anew, ready for the network.
        suites: by name and draw, the rows.
    """

    batches: Callable[[], Iterable[Any]]
    suites: Mapping[str, Rows]


@dataclass(frozen=True)
class Makers:
    """Make suites of one kind of data, ready for the network.

    Args:
        copies: by name, from the number of a draw and of inputs to noisy copies of a few test inputs; these are also
            made ten times as many as the test set.
        further: the same, for suites of equal size only.
        variant: from the number of a draw and of inputs to variants of one test input.
        noise: by name, as many inputs as the test set has that are no such data at all.
        attacks: from rows of the test set to attacked inputs, by name.
        attack_names: the names.
    """

    copies: Mapping[str, Callable[[int, int], Iterable[Any]]]
    further: Mapping[str, Callable[[int, int], Iterable[Any]]]
    variant: Callable[[int, int], Iterable[Any]]
    noise: Mapping[str, Callable[[], Iterable[Any]]]
    attacks: Callable[[Tensor], Mapping[str, Callable[[], Iterable[Any]]]] | None = None
    attack_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Hold the pools of a subject and the orders among their suites."""

    pools: Callable[[], Iterator[Pool]]
    orders: tuple[Order, ...] = field(default=())


@dataclass(frozen=True)
class Drawing:
    """Draw rows at random, by the name of a suite and the number of the draw."""

    context: ExperimentContext
    draws: int

    def rows(self, name: str, draw: int, count: int, wanted: int) -> Tensor:
        """Return so many of ``count`` rows."""
        return self.context.rows(count, wanted, 29, crc32(name.encode()) % 10_000_019, draw)

    def first(self, count: int) -> Tensor:
        """Return the first rows."""
        return torch.arange(count, device=self.context.device)

    def suite(self, name: str, count: int, wanted: int) -> Rows:
        """Return every draw of a suite."""
        return {draw: self.rows(name, draw, count, wanted) for draw in range(self.draws)}

    def within(self, name: str, wanted: int, rows: Callable[[int], Tensor]) -> Rows:
        """Return every draw of a suite, each from rows of its own."""
        found = {}
        for draw in range(self.draws):
            some = rows(draw)
            found[draw] = some[self.rows(name, draw, len(some), wanted)]
        return found


def make_plan(
    context: ExperimentContext, test: Samples, serve: Callable[[], Iterable[Any]], makers: Makers, draws: int
) -> Plan:
    """Plan the pools of a subject and its orders.

    Args:
        context: device, seed and how many inputs are attacked.
        test: the test set.
        serve: serves the test set ready for the network.
        makers: make everything else.
        draws: of every suite.
    """
    draw, total = Drawing(context, draws), len(test)
    sizes = (total // 10, total // 2)
    moved = min(total, context.scale.attacked)
    moved_sizes = tuple(min(size, moved // 2) for size in sizes)
    own, orders = _test_suites(draw, test.labels, len(test.classes))
    for size in (*sizes, *moved_sizes):
        own.setdefault(f"test, {size}", draw.suite(f"test, {size}", total, size))

    def copies() -> Iterator[Pool]:
        for number in range(draws):
            for name, make in makers.copies.items():
                suites: dict[str, Rows] = {f"×{MULTIPLE} {name}": {number: None}}
                suites[f"×1 {name}"] = {number: draw.first(total)}
                suites |= {f"{name}, {n}": {number: draw.rows(f"{name}, {n}", number, total, n)} for n in sizes}
                yield Pool(_bound(make, number, MULTIPLE * total), suites)
            for name, make in makers.further.items():
                yield Pool(_bound(make, number, sizes[1]), {f"{name}, {n}": {number: draw.first(n)} for n in sizes})

    def variants() -> Iterator[Pool]:
        for number in range(draws):
            yield Pool(_bound(makers.variant, number, sizes[0]), {f"variants of one, {sizes[0]}": {number: None}})

    def noise() -> Iterator[Pool]:
        for name, make in makers.noise.items():
            yield Pool(make, {f"{name}, {n}": draw.suite(f"{name}, {n}", total, n) for n in sizes})

    def attacks() -> Iterator[Pool]:
        if makers.attacks is not None:
            for name, serve_attacked in makers.attacks(draw.rows("attacked", 0, total, moved)).items():
                suites = {f"{name}, {n}": draw.suite(f"{name}, {n}", moved, n) for n in moved_sizes}
                yield Pool(serve_attacked, suites)

    for name in makers.copies:
        orders += [
            Order("copies, all", "test", f"×{MULTIPLE} {name}"),
            Order("copies, all", "test", f"×1 {name}"),
            Order("copies, more", f"×{MULTIPLE} {name}", f"×1 {name}"),
        ]
    for name in (*makers.copies, *makers.further):
        orders += [Order("copies, equal", f"test, {n}", f"{name}, {n}") for n in sizes]
    orders.append(Order("one input", f"test, {sizes[0]}", f"variants of one, {sizes[0]}"))
    for name in makers.noise:
        orders += [Order("noise inputs", f"test, {n}", f"{name}, {n}") for n in sizes]
    for name in makers.attack_names:
        orders += [Order("attacks", f"{name}, {n}", f"test, {n}") for n in dict.fromkeys(moved_sizes)]

    def pools() -> Iterator[Pool]:
        yield Pool(serve, own)
        for part in (variants, noise, attacks, copies):
            yield from part()

    return Plan(pools, tuple(orders))


def few_of(context: ExperimentContext, test: Samples, number: int) -> Samples:
    """Return the few inputs that copies are made of, a hundredth of the test set; other ones in every draw."""
    return test.take(context.rows(len(test), max(LEAST, len(test) // 100), 7, number))


def _bound(make: Callable[[int, int], Iterable[Any]], number: int, count: int) -> Callable[[], Iterable[Any]]:
    return lambda: make(number, count)


def _test_suites(draw: Drawing, labels: Tensor, classes: int) -> tuple[dict[str, Rows], list[Order]]:
    """Return suites drawn from the test set alone, and their orders: sizes, classes and duplicates."""
    total = len(labels)
    suites: dict[str, Rows] = {"test": dict.fromkeys(range(draw.draws))}
    parts = {"half of test": total // 2, "tenth of test": total // 10, "hundredth of test": max(2, total // 100)}
    for name, wanted in parts.items():
        # Nested: every part is the beginning of the larger one's order.
        suites[name] = draw.suite("nested", total, wanted)
    orders = [Order("sizes", above, below) for above, below in pairwise(["test", *parts])]
    counts = sorted({wanted for wanted in (classes, classes // 2, 2, 1) if wanted}, reverse=True)

    def rows_of(wanted: int) -> Callable[[int], Tensor]:
        def chosen(number: int) -> Tensor:
            some = draw.rows(f"{wanted} classes", number, classes, wanted).to(labels.device)
            return torch.isin(labels, some).nonzero()[:, 0]

        return chosen

    for fewer in counts[1:]:
        size = min(len(rows_of(fewer)(number)) for number in range(draw.draws)) * 4 // 5
        for more in counts[: counts.index(fewer)]:
            above, below = (f"{_counted(wanted)}, {size}" for wanted in (more, fewer))
            for name, wanted in ((above, more), (below, fewer)):
                if name not in suites:
                    suites[name] = draw.within(name, size, rows_of(wanted))
            orders.append(Order("classes", above, below))
    few = max(1, total // 20)
    name = f"{few} inputs ten times"
    suites[f"test, {few * 10}"] = draw.suite(f"test, {few * 10}", total, few * 10)
    suites[name] = {number: draw.rows(name, number, total, few).repeat(10) for number in range(draw.draws)}
    orders.append(Order("duplicates", f"test, {few * 10}", name))
    return suites, orders


def _counted(classes: int) -> str:
    return f"{classes} classes" if classes > 1 else "one class"
