"""128-bit keys computed on the device, and a set of them that grows with distinct members only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.kernels.hashing import compressed, lexical_order

_LAST = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class KeySet(Record, name="key-set", free=["longest"]):
    """Distinct keys, sorted by their first word.

    ``longest`` bounds how many keys share a first word: 1, but for a collision of 64 bits.
    """

    words: Int[Tensor, "n 2"]
    longest: int = 1

    @classmethod
    def empty(cls, device: torch.device) -> KeySet:
        """A set of nothing."""
        return cls(torch.empty(0, 2, dtype=torch.int64, device=device))

    def __len__(self) -> int:
        return self.words.shape[0]

    def contains(self, keys: Int[Tensor, "batch 2"]) -> Bool[Tensor, "batch"]:
        """Which keys are in the set."""
        found = torch.zeros(keys.shape[0], dtype=torch.bool, device=keys.device)
        if not len(self) or not keys.shape[0]:
            return found
        start = torch.searchsorted(self.words[:, 0].contiguous(), keys[:, 0].contiguous())
        for step in range(self.longest):
            found |= (self.words[(start + step).clamp(max=len(self) - 1)] == keys).all(1)
        return found

    def firsts(self, keys: Int[Tensor, "batch 2"], valid: Bool[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
        """Which valid keys are in neither the set nor the batch before them."""
        marked = keys.masked_fill(~valid[:, None], _LAST)
        order = lexical_order(marked)
        ordered = marked[order]
        repeats = torch.zeros_like(valid)
        repeats[1:] = (ordered[1:] == ordered[:-1]).all(1)
        first = torch.zeros_like(valid)
        first[order] = ~repeats
        return first & valid & ~self.contains(keys)

    def add(self, keys: Int[Tensor, "batch 2"], valid: Bool[Tensor, "batch"]) -> KeySet:
        """The set with the valid keys as well. Waits for the device once, to learn how many are new."""
        if not keys.shape[0]:
            return self
        keys = keys.masked_fill(~valid[:, None], _LAST)
        ordered = keys[lexical_order(keys)]
        repeats = torch.zeros(keys.shape[0], dtype=torch.bool, device=keys.device)
        repeats[1:] = (ordered[1:] == ordered[:-1]).all(1)
        fresh = ~repeats & ~self.contains(ordered) & (ordered != _LAST).any(1)
        collides = fresh & self._first_word_taken(ordered, fresh)
        count, collisions = torch.stack([fresh.sum(), collides.sum()]).tolist()
        if not count:
            return self
        return KeySet(self._merged(compressed(ordered, fresh, count)), self.longest + collisions)

    def union(self, other: KeySet) -> KeySet:
        """Keys in either set."""
        everyone = torch.ones(len(other), dtype=torch.bool, device=other.words.device)
        return self.add(other.words, everyone)

    def _first_word_taken(self, ordered: Tensor, fresh: Tensor) -> Tensor:
        """Whether another key, of the set or earlier in the batch, has the same first word."""
        first = ordered[:, 0].contiguous()
        taken = torch.zeros_like(fresh)
        taken[1:] = first[1:] == first[:-1]
        if len(self):
            ours = self.words[:, 0].contiguous()
            taken |= torch.searchsorted(ours, first, right=True) > torch.searchsorted(ours, first)
        return taken

    def _merged(self, fresh: Tensor) -> Tensor:
        """Both sorted runs woven together in linear time."""
        ours, theirs = self.words[:, 0].contiguous(), fresh[:, 0].contiguous()
        words = torch.empty(len(self) + len(fresh), 2, dtype=torch.int64, device=fresh.device)
        words[torch.searchsorted(theirs, ours) + torch.arange(len(ours), device=ours.device)] = self.words
        words[torch.searchsorted(ours, theirs, right=True) + torch.arange(len(theirs), device=ours.device)] = fresh
        return words


@dataclass(frozen=True, eq=False)
class BucketSet(Record, name="bucket-set"):
    """Distinct whole numbers of any size and sign as float64, rising; behind them any number of infinities.

    How many numbers a batch adds is known on the device first. Room for all of them is made at once, and what was not
    needed is cut off when the count has arrived, at the next batch or a later one: nothing waits for it.
    """

    numbers: Float[Tensor, "room"]

    @classmethod
    def empty(cls, device: torch.device) -> BucketSet:
        """A set of nothing."""
        return cls(torch.empty(0, dtype=torch.float64, device=device))

    def count(self) -> Float[Tensor, ""]:
        """How many there are."""
        return self.numbers.isfinite().sum().double()

    def contains(self, buckets: Float[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
        """Which are in the set; what is not finite is not."""
        if not len(self.numbers):
            return torch.zeros_like(buckets, dtype=torch.bool)
        at = torch.searchsorted(self.numbers, buckets).clamp(max=len(self.numbers) - 1)
        return (self.numbers[at] == buckets) & buckets.isfinite()

    def firsts(self, buckets: Float[Tensor, "batch"], valid: Bool[Tensor, "batch"]) -> Bool[Tensor, "batch"]:
        """Which valid ones are in neither the set nor the batch before them."""
        ordered, order = buckets.masked_fill(~valid, math.inf).sort(stable=True)
        first = torch.empty_like(valid)
        first[order] = _differs_from_before(ordered)
        return first & valid & ~self.contains(buckets)

    def add(self, buckets: Float[Tensor, "batch"], valid: Bool[Tensor, "batch"]) -> BucketSet:
        """The set with the valid ones as well."""
        rising = torch.cat([_cut(self), buckets.masked_fill(~valid, math.inf)]).sort().values
        kept = _differs_from_before(rising) & rising.isfinite()
        room = len(rising)
        numbers = torch.full((room + 1,), math.inf, dtype=torch.float64, device=rising.device)
        # What is not kept goes where it is cut off.
        numbers[torch.where(kept, kept.cumsum(0) - 1, room)] = rising
        grown = BucketSet(numbers[:room])
        return _announced(grown, kept.sum())

    def compact(self) -> Self:
        """Without the room behind the numbers."""
        return replace(self, numbers=self.numbers[: int(self.count())])

    def union(self, other: BucketSet) -> BucketSet:
        """Numbers in either set."""
        return self.add(other.numbers, other.numbers.isfinite())


# Counts on their way from a GPU, in memory that it writes by itself, and the events that tell of their arrival.
_coming: WeakKeyDictionary[BucketSet, tuple[torch.cuda.Event, Tensor]] = WeakKeyDictionary()


def _announced(grown: BucketSet, count: Tensor) -> BucketSet:
    if count.device.type != "cuda":
        return BucketSet(grown.numbers[: int(count)])
    arriving = torch.empty((), dtype=count.dtype, pin_memory=True)
    arriving.copy_(count, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    # The stream of the count's own device, which need not be the current one.
    event.record(torch.cuda.current_stream(count.device))
    _coming[grown] = event, arriving
    return grown


def _cut(known: BucketSet) -> Tensor:
    """The numbers without the room behind them, if their count has arrived."""
    if known in _coming:
        event, count = _coming[known]
        if event.query():  # type: ignore[no-untyped-call]
            return known.numbers[: int(count)]
    return known.numbers


def _differs_from_before(rising: Tensor) -> Tensor:
    differs = torch.ones_like(rising, dtype=torch.bool)
    differs[1:] = rising[1:] != rising[:-1]
    return differs
