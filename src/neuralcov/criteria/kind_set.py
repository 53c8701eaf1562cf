"""A growing set of kinds, known by 128-bit keys, with how often each was shown.

Keys stand sorted by their first word. :func:`as_members` makes first words as good as random, unless the criterion says
that they are, and reversibly: among a million kinds three share one with a probability below 10⁻²⁰. So a kind is found
by looking where its first word belongs, there and one further.

How many kinds a batch adds is known on the device first. Room for all of them is made at once, filled with ``ABSENT``,
and what was not needed is cut off when the count has arrived, at the next batch or a later one: nothing waits for it.
Only the batch is sorted; both sorted runs are then woven together in linear time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Int
from neuralcov.kernels.hashing import lexical_order

ABSENT = (1 << 63) - 1
"""Both words of a key that stands for no kind."""

UNKNOWN = -(1 << 62)
"""The count of a kind from a file that kept none; any number may be added to it, and it stays below 0."""


@dataclass(frozen=True, eq=False)
class KindSet(Record, name="distinct-kinds"):
    """Distinct kinds of all columns.

    Args:
        keys: members, sorted by their first word; behind them any number of absent ones.
        counts: how often each was shown; below 0 where that is unknown.
        columns: to which column each belongs; ``None`` where there is one only.
    """

    keys: Int[Tensor, "room 2"]
    counts: Int[Tensor, "room"]
    columns: Int[Tensor, "room"] | None = None

    @classmethod
    def empty(cls, columns: int, device: torch.device) -> KindSet:
        """Return a set of nothing."""
        nothing = torch.zeros(0, dtype=torch.int64, device=device)
        return cls(nothing.reshape(0, 2), nothing, nothing if columns > 1 else None)

    def present(self) -> Bool[Tensor, "room"]:
        """Return which entries are kinds; the others are room."""
        return (self.keys != ABSENT).any(1)

    def count(self) -> Int[Tensor, ""]:
        """Return how many kinds there are."""
        # Room lies behind the kinds: where looking is free, the last entry tells whether there is any.
        if looking_is_free(self.keys.device) and (not len(self.keys) or self.keys[-1].tolist() != [ABSENT, ABSENT]):
            return torch.tensor(len(self.keys))
        return self.present().sum()

    def contains(self, keys: Int[Tensor, "some 2"]) -> Bool[Tensor, "some"]:
        """Return which members are in the set; anything for absent ones."""
        return self._find(keys)[1]

    def firsts(self, keys: Int[Tensor, "some 2"], valid: Bool[Tensor, "some"]) -> Bool[Tensor, "some"]:
        """Return which valid members are in neither the set nor the batch before them."""
        marked = keys.masked_fill(~valid[:, None], ABSENT)
        order = lexical_order(marked)
        first = torch.empty_like(valid)
        first[order] = _differs_from_before(marked[order])
        return first & valid & ~self.contains(keys)

    def add(
        self,
        keys: Int[Tensor, "some 2"],
        valid: Bool[Tensor, "some"] | None = None,
        columns: Int[Tensor, "some"] | None = None,
        counts: Int[Tensor, "some"] | None = None,
    ) -> KindSet:
        """Return the set with the valid members as well, each shown once more, or ``counts`` times."""
        if not len(keys):
            return self
        known_so_far = cut(self)
        # Here and below: where looking is free, work that changes nothing is left out.
        free = looking_is_free(keys.device)
        if valid is not None and not (free and bool(valid.all())):
            keys = keys.masked_fill(~valid[:, None], ABSENT)
        order = lexical_order(keys)
        ordered = keys[order]
        first = _differs_from_before(ordered)
        shown = torch.ones_like(order) if counts is None else counts[order]
        if not free or not bool(first.all()):
            # The first of its like stands for all of them.
            run = first.cumsum(0) - 1
            shown = torch.zeros_like(run).index_add_(0, run, shown)[run]
        first &= _present(ordered)
        at, known = known_so_far._find(ordered)
        if free and not bool(known.any()):
            return _woven(known_so_far, ordered, shown, None if columns is None else columns[order], at, first)
        counted = torch.cat([known_so_far.counts, known_so_far.counts.new_zeros(1)])
        # What is not known, or stands for its like elsewhere, is added to an entry that is cut off.
        counted.index_add_(0, torch.where(first & known, at, len(counted) - 1), shown)
        ours = replace(known_so_far, counts=counted[:-1])
        return _woven(ours, ordered, shown, None if columns is None else columns[order], at, first & ~known)

    def union(self, other: KindSet) -> KindSet:
        """Return kinds of either set; what both have was shown as often as they say together."""
        joined = self.add(other.keys, None, other.columns, other.counts)
        return replace(joined, counts=joined.counts.clamp(min=UNKNOWN))

    def compact(self) -> Self:
        """Cut off the room behind the kinds."""
        count = int(self.present().sum())
        columns = None if self.columns is None else self.columns[:count]
        return replace(self, keys=self.keys[:count], counts=self.counts[:count], columns=columns)

    def _find(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return where each member is or, if it is not here, belongs, and whether it is here."""
        if not len(self.keys):
            nowhere = torch.zeros(len(keys), dtype=torch.int64, device=keys.device)
            return nowhere, nowhere.bool()
        last = len(self.keys) - 1
        words = self.keys[:, 0].contiguous()
        at = torch.searchsorted(words, keys[:, 0].contiguous())
        near = at.clamp(max=last)
        alike = words[near] == keys[:, 0]
        free = looking_is_free(keys.device)
        if free and not bool(alike.any()):
            return at, alike
        here = alike & (self.keys[:, 1][near] == keys[:, 1])
        if free and torch.equal(here, alike):
            return at, here
        behind = (self.keys[(at + 1).clamp(max=last)] == keys).all(1) & ~here
        return at + behind, here | behind


def as_members(
    kinds: Int[Tensor, "batch columns 2"], *, hashed: bool = False
) -> tuple[Int[Tensor, "entries 2"], Int[Tensor, "entries"] | None, Bool[Tensor, "batch columns"]]:
    """Return keys as a set keeps them, an entry per input and column; the columns, if several; which are present.

    Args:
        kinds: the keys as a criterion gives them.
        hashed: whether first words alone tell kinds apart, so that they need not be mixed with the second ones.
    """
    size, columns = kinds.shape[:2]
    absent = (kinds == ABSENT).all(2)
    if hashed and columns == 1:
        return kinds.reshape(-1, 2), None, ~absent
    numbers = torch.arange(columns, device=kinds.device)
    keys = kinds.clone()
    keys[..., 0] += _salt(kinds[..., 1], numbers, hashed)
    keys.masked_fill_(absent[:, :, None], ABSENT)
    return keys.view(-1, 2), numbers.repeat(size) if columns > 1 else None, ~absent


def as_kinds(keys: Int[Tensor, "entries 2"], column: int | None, *, hashed: bool = False) -> Int[Tensor, "entries 2"]:
    """Undo :func:`as_members` for the members of one column; ``None`` is the only one."""
    if hashed and column is None:
        return keys
    number = torch.full((1,), column or 0, device=keys.device)
    return torch.stack([keys[:, 0] - _salt(keys[:, 1], number, hashed), keys[:, 1]], dim=1)


def _salt(second: Tensor, columns: Tensor, hashed: bool) -> Tensor:
    """Return what is added to the first words of columns' keys."""
    words = (columns + 1) * GOLDEN_RATIO
    return splitmix64(words if hashed else second + words)


def _woven(ours: KindSet, keys: Tensor, shown: Tensor, columns: Tensor | None, at: Tensor, fresh: Tensor) -> KindSet:
    """Return a set with the fresh ones of some sorted members put in, each before the entry ``at`` which it belongs."""
    room = len(ours.keys) + len(keys)
    free = looking_is_free(keys.device)
    if free and not bool(fresh.any()):
        return ours
    moved = torch.zeros(len(ours.keys) + 1, dtype=torch.int64, device=keys.device).index_add_(0, at, fresh.long())
    old = torch.arange(len(ours.keys), device=keys.device) + moved.cumsum(0)[:-1]
    # What is not fresh goes where it is cut off.
    new = torch.where(fresh, at + fresh.cumsum(0) - 1, room)

    def weave(mine: Tensor, theirs: Tensor, filling: int) -> Tensor:
        both = mine.new_full((room + 1, *mine.shape[1:]), filling)
        return both.index_copy_(0, old, mine).index_copy_(0, new, theirs)[:room]

    woven = KindSet(
        weave(ours.keys, keys, ABSENT),
        weave(ours.counts, shown, 0),
        None if ours.columns is None or columns is None else weave(ours.columns, columns, 0),
    )
    return _first(woven, len(ours.keys) + int(fresh.sum())) if free else announce(woven)


def _first(some: KindSet, count: int) -> KindSet:
    columns = None if some.columns is None else some.columns[:count]
    return KindSet(some.keys[:count], some.counts[:count], columns)


# Counts on their way from a GPU, in memory that it writes by itself, and the events that tell of their arrival.
_coming: WeakKeyDictionary[KindSet, tuple[torch.cuda.Event, Tensor]] = WeakKeyDictionary()


def looking_is_free(device: torch.device) -> bool:
    """Return whether a number on the device can be read without waiting."""
    return device.type == "cpu"


def announce(grown: KindSet) -> KindSet:
    """Send the number of kinds to the host, where :func:`cut` will find it once it has arrived."""
    count = grown.present().sum()
    if count.device.type != "cuda":
        return _first(grown, int(count))
    arriving = torch.empty((), dtype=count.dtype, pin_memory=True)
    arriving.copy_(count, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    # The stream of the count's own device, which need not be the current one.
    event.record(torch.cuda.current_stream(count.device))
    _coming[grown] = event, arriving
    return grown


def cut(known: KindSet) -> KindSet:
    """Return the set without the room behind its kinds, if their number has arrived."""
    if known in _coming:
        event, count = _coming[known]
        if event.query():  # type: ignore[no-untyped-call]
            return _first(known, int(count))
    return known


def _present(keys: Tensor) -> Tensor:
    return (keys != ABSENT).any(1)


def _differs_from_before(ordered: Tensor) -> Tensor:
    differs = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(1)
    return differs
