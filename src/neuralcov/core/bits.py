"""Booleans as bits: 64 to a word, packed, unpacked and counted on the device."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Int


def words_for(width: int) -> int:
    """How many 64-bit words hold ``width`` bits."""
    return -(-width // 64)


def pack(bits: Bool[Tensor, "*rows width"]) -> Int[Tensor, "*rows words"]:
    """Bits in 64-bit words, the last word padded with zeros."""
    padded = torch.nn.functional.pad(bits, (0, 64 * words_for(bits.shape[-1]) - bits.shape[-1]))
    octets = padded.reshape(*bits.shape[:-1], padded.shape[-1] // 8, 8)
    packed = (octets * _weights(bits.device)).sum(-1, dtype=torch.uint8)
    return packed.view(torch.int64)


def unpack(words: Int[Tensor, "*rows words"], width: int) -> Bool[Tensor, "*rows width"]:
    """The first ``width`` bits of packed words."""
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
