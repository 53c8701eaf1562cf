"""Bits packed into words, and 128-bit keys of sets of neurons with their order, all on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor

from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.shapes import Bool, Float, Int

_PIECES = 4
_PIECE_BITS = 16


def words_for(width: int) -> int:
    """Return how many 64-bit words hold ``width`` bits."""
    return -(-width // 64)


def pack(bits: Bool[Tensor, "*rows width"]) -> Int[Tensor, "*rows words"]:
    """Return bits in 64-bit words, the last word padded with zeros."""
    padded = torch.nn.functional.pad(bits, (0, 64 * words_for(bits.shape[-1]) - bits.shape[-1]))
    octets = padded.reshape(*bits.shape[:-1], padded.shape[-1] // 8, 8)
    packed = (octets * _weights(bits.device)).sum(-1, dtype=torch.uint8)
    return packed.view(torch.int64)


def unpack(words: Int[Tensor, "*rows words"], width: int) -> Bool[Tensor, "*rows width"]:
    """Return the first ``width`` bits of packed words."""
    octets = words.contiguous().view(torch.uint8)
    return ((octets[..., None] & _weights(words.device)) != 0).flatten(-2)[..., :width]


def count_bits(words: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Set bits of every word, by adding neighbours of 1, 2 and 4 bits and then all bytes.

    >>> count_bits(torch.tensor([0, 1, -1, 255])).tolist()
    [0, 1, 64, 8]
    """
    pairs = words - ((words >> 1) & 0x5555555555555555)
    nibbles = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    octets = (nibbles + (nibbles >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((octets * 0x0101010101010101) >> 56) & 0x7F


@lru_cache(maxsize=16)
def _weights(device: torch.device) -> Tensor:
    # Made by a shift, not from a list: copying a list to a GPU would wait for it.
    return torch.ones(8, dtype=torch.uint8, device=device) << torch.arange(8, dtype=torch.uint8, device=device)


@lru_cache(maxsize=1024)
def neuron_words(layer: int, width: int, device: torch.device) -> Int[Tensor, "width 2"]:
    """Return two random 64-bit words for every neuron of a layer, the same everywhere and always.

    The sum of the words of a set of neurons, modulo 2⁶⁴ each, is the set's key.
    """
    identity = torch.arange(2 * width, device=device).reshape(width, 2) + (layer << 40)
    return splitmix64((identity + 1) * GOLDEN_RATIO)


def set_keys(members: Bool[Tensor, "batch layers width"], layers: Sequence[int]) -> Int[Tensor, "batch layers 2"]:
    """Return keys of sets of neurons, for several layers of one width.

    Integer products are slow or missing on most devices, so the words are cut into pieces of 16 bits whose
    sums float64 holds exactly.
    """
    pieces = word_pieces(tuple(layers), members.shape[2], members.device)
    sums = torch.bmm(members.transpose(0, 1).double(), pieces).long()
    keys = torch.zeros(*sums.shape[:2], 2, dtype=torch.int64, device=members.device)
    for piece in range(_PIECES):
        keys += sums[:, :, 2 * piece : 2 * piece + 2] << (_PIECE_BITS * piece)
    return keys.transpose(0, 1)


@lru_cache(maxsize=64)
def word_pieces(layers: tuple[int, ...], width: int, device: torch.device) -> Float[Tensor, "layers width pieces"]:
    """Return the words of several layers' neurons, in pieces of 16 bits as float64."""
    words = torch.stack([neuron_words(layer, width, device) for layer in layers])
    return torch.cat([((words >> (_PIECE_BITS * piece)) & 0xFFFF).double() for piece in range(_PIECES)], dim=2)


def lexical_order(keys: Int[Tensor, "batch 2"]) -> Int[Tensor, "batch"]:
    """Return the order of keys by first and then second word."""
    by_second = keys[:, 1].argsort(stable=True)
    return by_second[keys[by_second, 0].argsort(stable=True)]


def lexical_orders(tables: Sequence[Int[Tensor, "_ 2"]]) -> list[Int[Tensor, "_"]]:
    """Return the order of each of several tables of keys."""
    if not tables or tables[0].device.type == "cpu":
        return [lexical_order(keys) for keys in tables]
    return ordered_together(tables)


def ordered_together(tables: Sequence[Tensor]) -> list[Tensor]:
    """Do the same by sorting all at once: starting a sort on a GPU takes longer than sorting a small table."""
    device, sizes = tables[0].device, [len(keys) for keys in tables]
    table = torch.cat([torch.full((n,), i, dtype=torch.int32, device=device) for i, n in enumerate(sizes)])
    order = lexical_order(torch.cat(list(tables)))
    order = order[table[order].argsort(stable=True)]
    starts = accumulate(sizes[:-1], initial=0)
    return [part - start for part, start in zip(torch.split(order, sizes), starts, strict=True)]


def compressed(rows: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Return the chosen rows in order. Their number is known, so nothing waits for the device."""
    place = torch.where(chosen, chosen.cumsum(0) - 1, count)
    kept = rows.new_empty(count + 1, *rows.shape[1:])
    kept[place] = rows
    return kept[:count]
