"""Cut a layer's outputs into boxes as LCC does: random signs, offsets, and keys of what inputs show."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.shapes import Float, Int

_SIGN, _SHIFT, _UNIT = 1 << 63, 11, 2.0**-53


def mix(numbers: Tensor) -> Tensor:
    """Mix numbers by splitmix64, its constant added first."""
    return splitmix64(numbers + GOLDEN_RATIO)


@lru_cache(maxsize=4096)
def key_of(layer: str, seed: int) -> int:
    """Return the key of a layer, as a signed number of 64 bits."""
    digest = hashlib.sha256(f"neuralcov.LCC/{seed}/{layer}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def signs(layer: str, width: int, directions: int, seed: int) -> Float[Tensor, "width directions"]:
    """Return the sign of every neuron in every direction, as +1 or −1."""
    places = torch.arange(width * directions) + key_of(layer, seed)
    return torch.where(mix(places) < 0, 1.0, -1.0).double().reshape(width, directions)


def offsets(layer: str, width: int, directions: int, seed: int) -> Float[Tensor, "directions"]:
    """Return where the boxes of each direction begin, in [0, 1)."""
    places = torch.arange(directions) + width * directions + key_of(layer, seed)
    words = (mix(places) >> _SHIFT) & ((1 << (64 - _SHIFT)) - 1)
    return words.double() * _UNIT


def box_keys(boxes: Int[Tensor, "layers n directions"], start: Int[Tensor, "layers"]) -> Int[Tensor, "layers n"]:
    """Return a key of each box: the first word of LCC's, before the decision is mixed in."""
    keys = start[:, None].expand(boxes.shape[:2])
    for direction in range(boxes.shape[2]):
        keys = mix(keys ^ boxes[:, :, direction])
    return keys
