"""128-bit keys computed on the device, and a set of them that grows with distinct members only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from neuralcov.core.mixing import STEP, mixed
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int

_LAST = (1 << 63) - 1
_PIECES = 4
_PIECE_BITS = 16


@lru_cache(maxsize=1024)
def neuron_words(layer: int, width: int, device: torch.device) -> Int[Tensor, "width 2"]:
    """Two random 64-bit words for every neuron of a layer, the same everywhere and always.

    The sum of the words of a set of neurons, modulo 2⁶⁴ each, is the set's key.
    """
    identity = torch.arange(2 * width, device=device).reshape(width, 2) + (layer << 40)
    return mixed((identity + 1) * STEP)


def set_keys(members: Bool[Tensor, "batch layers width"], layers: Sequence[int]) -> Int[Tensor, "batch layers 2"]:
    """Keys of sets of neurons, for several layers of one width.

    Integer products are slow or missing on most devices, so the words are cut into pieces of 16 bits whose
    sums float64 holds exactly.
    """
    pieces = _word_pieces(tuple(layers), members.shape[2], members.device)
    sums = torch.bmm(members.transpose(0, 1).double(), pieces).long()
    keys = torch.zeros(*sums.shape[:2], 2, dtype=torch.int64, device=members.device)
    for piece in range(_PIECES):
        keys += sums[:, :, 2 * piece : 2 * piece + 2] << (_PIECE_BITS * piece)
    return keys.transpose(0, 1)


@lru_cache(maxsize=64)
def _word_pieces(layers: tuple[int, ...], width: int, device: torch.device) -> Float[Tensor, "layers width pieces"]:
    """The words of several layers' neurons, in pieces of 16 bits as float64."""
    words = torch.stack([neuron_words(layer, width, device) for layer in layers])
    return torch.cat([((words >> (_PIECE_BITS * piece)) & 0xFFFF).double() for piece in range(_PIECES)], dim=2)


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
        return KeySet(self._merged(_compressed(ordered, fresh, count)), self.longest + collisions)

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


def lexical_order(keys: Int[Tensor, "batch 2"]) -> Int[Tensor, "batch"]:
    """The order of keys by first and then second word."""
    by_second = keys[:, 1].argsort(stable=True)
    return by_second[keys[by_second, 0].argsort(stable=True)]


def lexical_orders(tables: Sequence[Int[Tensor, "_ 2"]]) -> list[Int[Tensor, "_"]]:
    """The order of each of several tables of keys."""
    if not tables or tables[0].device.type == "cpu":
        return [lexical_order(keys) for keys in tables]
    return _ordered_together(tables)


def _ordered_together(tables: Sequence[Tensor]) -> list[Tensor]:
    """The same by sorting all at once: starting a sort on a GPU takes longer than sorting a small table."""
    device, sizes = tables[0].device, [len(keys) for keys in tables]
    table = torch.cat([torch.full((n,), i, dtype=torch.int32, device=device) for i, n in enumerate(sizes)])
    order = lexical_order(torch.cat(list(tables)))
    order = order[table[order].argsort(stable=True)]
    starts = accumulate(sizes[:-1], initial=0)
    return [part - start for part, start in zip(torch.split(order, sizes), starts, strict=True)]


def _compressed(rows: Tensor, chosen: Tensor, count: int) -> Tensor:
    """The chosen rows in order. Their number is known, so nothing waits for the device."""
    place = torch.where(chosen, chosen.cumsum(0) - 1, count)
    kept = rows.new_empty(count + 1, *rows.shape[1:])
    kept[place] = rows
    return kept[:count]
