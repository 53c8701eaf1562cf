"""A growing set of kinds, known by 128-bit keys, with how often each was shown.

Keys stand sorted by their first word. ``as_members`` makes first words as good as random, unless the criterion says
that they are, and reversibly: among a million kinds three share one with a probability below 10⁻²⁰. So a kind is found
by looking where its first word belongs, there and one further.

How many kinds a batch adds is known on the device first. Room for all of them is made at once, filled with ``ABSENT``,
and what was not needed is cut off when the count has arrived, at the next batch or a later one: nothing waits for it.
Only the batch is sorted; both sorted runs are then woven together in linear time.
"""

from __future__ import annotations

from collections.abc import Callable
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

# How sets keep columns, marks and folds: a kind takes 34 bytes with all of them.
COLUMN, MARK, FOLDS = torch.int32, torch.int32, torch.int16
FOLD_COUNT = 10
"""Into how many folds inputs are dealt, by their content keys, for errors by leaving one out."""

UNKNOWN = -(1 << 62)
"""The count of a kind from a file that kept none; any number may be added to it, and it stays below 0."""


@dataclass(frozen=True, eq=False)
class KindSet(Record, name="distinct-kinds"):
    """Distinct kinds of all columns.

    Args:
        keys: members, sorted by their first word; behind them any number of absent ones.
        counts: how often each was shown; below 0 where that is unknown.
        columns: to which column each belongs; ``None`` where there is one only.
        marks: a number that a criterion keeps with each kind, the same whenever it is shown; ``None`` if it keeps none.
        folds: which folds of the inputs have shown each, a bit for each fold; ``None`` if nobody asks.
    """

    keys: Int[Tensor, "room 2"]
    counts: Int[Tensor, "room"]
    columns: Int[Tensor, "room"] | None = None
    marks: Int[Tensor, "room"] | None = None
    folds: Int[Tensor, "room"] | None = None

    @classmethod
    def empty(cls, columns: int, device: torch.device, *, marked: bool = False, folded: bool = False) -> KindSet:
        """Return a set of nothing, which keeps marks if ``marked`` and folds if ``folded``."""
        keys, counts = (torch.zeros(shape, dtype=torch.int64, device=device) for shape in ((0, 2), (0,)))
        return cls(
            keys,
            counts,
            counts.to(COLUMN) if columns > 1 else None,
            counts.to(MARK) if marked else None,
            counts.to(FOLDS) if folded else None,
        )

    @classmethod
    def of(
        cls,
        keys: Int[Tensor, "some 2"],
        columns: Int[Tensor, "some"] | None = None,
        marks: Int[Tensor, "some"] | None = None,
        folds: Int[Tensor, "some"] | None = None,
        *,
        counts: Int[Tensor, "some"] | None = None,
    ) -> KindSet:
        """Return entries to ``add``, in any order, shown once each or ``counts`` times."""
        once = torch.ones(len(keys), dtype=torch.int64, device=keys.device) if counts is None else counts
        return cls(keys, once, columns, marks, folds)

    def each(self, function: Callable[[Tensor], Tensor]) -> KindSet:
        """Return a set of what a function makes of each part."""
        rest = (self.columns, self.marks, self.folds)
        return KindSet(
            function(self.keys), function(self.counts), *(None if part is None else function(part) for part in rest)
        )

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
        return find(self.keys, keys)[1]

    def firsts(self, keys: Int[Tensor, "some 2"], valid: Bool[Tensor, "some"]) -> Bool[Tensor, "some"]:
        """Return which valid members are in neither the set nor the batch before them."""
        marked = keys.masked_fill(~valid[:, None], ABSENT)
        order = lexical_order(marked)
        first = torch.empty_like(valid)
        first[order] = differs_from_before(marked[order])
        return first & valid & ~self.contains(keys)

    def add(self, shown: KindSet, valid: Bool[Tensor, "some"] | None = None) -> KindSet:
        """Return the set with the valid members of ``shown`` as well, which may be in any order and repeat."""
        if not len(shown.keys):
            return self
        ours = cut(self)
        # Here and below: where looking is free, work that changes nothing is left out.
        free = looking_is_free(shown.keys.device)
        if valid is not None and not (free and bool(valid.all())):
            shown = replace(shown, keys=shown.keys.masked_fill(~valid[:, None], ABSENT))
        order = lexical_order(shown.keys)
        shown = shown.each(lambda part: part[order])
        first = differs_from_before(shown.keys)
        if not free or not bool(first.all()):
            shown = _gathered(shown, first)
        first &= _present(shown.keys)
        at, known = find(ours.keys, shown.keys)
        if free and not bool(known.any()):
            return _woven(ours, shown, at, first)
        # What is not known, or stands for its like elsewhere, is added to an entry that is cut off.
        ours = _shown_again(ours, shown, torch.where(first & known, at, len(ours.keys)))
        return _woven(ours, shown, at, first & ~known)

    def union(self, other: KindSet) -> KindSet:
        """Return kinds of either set; what both have was shown as often as they say together."""
        joined = self.add(other)
        return replace(joined, counts=joined.counts.clamp(min=UNKNOWN))

    def compact(self) -> Self:
        """Cut off the room behind the kinds."""
        count = int(self.present().sum())
        return self.each(lambda part: part[:count])  # type: ignore[return-value]


def find(table: Int[Tensor, "room 2"], keys: Int[Tensor, "some 2"]) -> tuple[Int[Tensor, "some"], Bool[Tensor, "some"]]:
    """Return where in a table of members each member is or, if it is not there, belongs, and whether it is there."""
    if not len(table):
        nowhere = torch.zeros(len(keys), dtype=torch.int64, device=keys.device)
        return nowhere, nowhere.bool()
    last = len(table) - 1
    words = table[:, 0].contiguous()
    at = torch.searchsorted(words, keys[:, 0].contiguous())
    near = at.clamp(max=last)
    alike = words[near] == keys[:, 0]
    free = looking_is_free(keys.device)
    if free and not bool(alike.any()):
        return at, alike
    here = alike & (table[:, 1][near] == keys[:, 1])
    if free and torch.equal(here, alike):
        return at, here
    behind = (table[(at + 1).clamp(max=last)] == keys).all(1) & ~here
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
    keys = kinds.clone(memory_format=torch.contiguous_format)
    keys[..., 0] += _salt(kinds[..., 1], numbers, hashed)
    keys.masked_fill_(absent[:, :, None], ABSENT)
    return keys.view(-1, 2), numbers.to(COLUMN).repeat(size) if columns > 1 else None, ~absent


def as_kinds(keys: Int[Tensor, "entries 2"], column: int | None, *, hashed: bool = False) -> Int[Tensor, "entries 2"]:
    """Undo ``as_members`` for the members of one column; ``None`` is the only one."""
    if hashed and column is None:
        return keys
    number = torch.full((1,), column or 0, device=keys.device)
    return torch.stack([keys[:, 0] - _salt(keys[:, 1], number, hashed), keys[:, 1]], dim=1)


def _salt(second: Tensor, columns: Tensor, hashed: bool) -> Tensor:
    """Return what is added to the first words of columns' keys."""
    words = (columns + 1) * GOLDEN_RATIO
    return splitmix64(words if hashed else second + words)


def _gathered(entries: KindSet, first: Bool[Tensor, "some"]) -> KindSet:
    """Let the first of each run of equal entries stand for all of them; what the others say then does not matter."""
    run = first.cumsum(0) - 1
    counts = torch.zeros_like(run).index_add_(0, run, entries.counts)[run]
    if entries.folds is None:
        return replace(entries, counts=counts)
    bits = torch.arange(FOLD_COUNT, device=run.device, dtype=FOLDS)
    each = (entries.folds[:, None] >> bits) & 1
    shown = torch.zeros(len(run), FOLD_COUNT, dtype=torch.int32, device=run.device).index_add_(0, run, each.int()) > 0
    folds = (shown.to(FOLDS) << bits).sum(1, dtype=FOLDS)[run]
    return replace(entries, counts=counts, folds=folds)


def _shown_again(ours: KindSet, shown: KindSet, at: Int[Tensor, "some"]) -> KindSet:
    """Add counts and folds of entries to the members ``at`` which they stand; those behind the last stand nowhere."""
    counts = torch.cat([ours.counts, ours.counts.new_zeros(1)]).index_add_(0, at, shown.counts)
    if ours.folds is None or shown.folds is None:
        return replace(ours, counts=counts[:-1])
    folds = torch.cat([ours.folds, ours.folds.new_zeros(1)])
    folds[at] = folds[at] | shown.folds
    return replace(ours, counts=counts[:-1], folds=folds[:-1])


def _woven(ours: KindSet, shown: KindSet, at: Int[Tensor, "some"], fresh: Bool[Tensor, "some"]) -> KindSet:
    """Return a set with the fresh ones of some sorted members put in, each before the entry ``at`` which it belongs."""
    device = shown.keys.device
    room = len(ours.keys) + len(shown.keys)
    free = looking_is_free(device)
    if free and not bool(fresh.any()):
        return ours
    moved = torch.zeros(len(ours.keys) + 1, dtype=torch.int64, device=device).index_add_(0, at, fresh.long())
    old = torch.arange(len(ours.keys), device=device) + moved.cumsum(0)[:-1]
    # What is not fresh goes where it is cut off.
    new = torch.where(fresh, at + fresh.cumsum(0) - 1, room)

    def weave(mine: Tensor | None, theirs: Tensor | None, filling: int = 0) -> Tensor | None:
        if mine is None or theirs is None:
            return None
        both = mine.new_full((room + 1, *mine.shape[1:]), filling)
        return both.index_copy_(0, old, mine).index_copy_(0, new, theirs)[:room]

    keys, counts = weave(ours.keys, shown.keys, ABSENT), weave(ours.counts, shown.counts)
    assert keys is not None
    assert counts is not None
    rest = ((ours.columns, shown.columns), (ours.marks, shown.marks), (ours.folds, shown.folds))
    woven = KindSet(keys, counts, *(weave(mine, theirs) for mine, theirs in rest))
    return _first(woven, len(ours.keys) + int(fresh.sum())) if free else announce(woven)


def _first(some: KindSet, count: int) -> KindSet:
    return some.each(lambda part: part[:count])


# Counts on their way from a GPU, in memory that it writes by itself, and the events that tell of their arrival.
_coming: WeakKeyDictionary[KindSet, tuple[torch.cuda.Event, Tensor]] = WeakKeyDictionary()


def looking_is_free(device: torch.device) -> bool:
    """Return whether a number on the device can be read without waiting."""
    return device.type == "cpu"


def announce(grown: KindSet) -> KindSet:
    """Send the number of kinds to the host, where ``cut`` will find it once it has arrived."""
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


def differs_from_before(ordered: Int[Tensor, "some 2"]) -> Bool[Tensor, "some"]:
    """Return which rows of a table differ from the row before; the first does."""
    differs = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(1)
    return differs
