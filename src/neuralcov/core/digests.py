"""Content keys: 128 bits that tell inputs apart by their bytes, computed where the inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.mixing import STEP, mixed
from neuralcov.core.shapes import Int, Shaped
from neuralcov.core.sizes import blocks

_WORD_BYTES = 4


def content_keys(parts: Sequence[Shaped[Tensor, "batch ..."]]) -> Int[Tensor, "batch 2"]:
    """Return a 128-bit key of each input, as two words; equal bytes give equal keys on every device.

    Every 32-bit word of an input is multiplied with two random odd 64-bit words that belong to its place, the products
    are summed modulo 2⁶⁴, and the sums are mixed, so that a sum of keys says nothing about a sum of inputs. Two inputs
    of different bytes share a key with a probability of about 2⁻⁸⁰ at the most. Zeros behind an input's end, as padding
    of tokens, add nothing: the key does not depend on how far a batch was padded.

    Args:
        parts: the tensors that make up the inputs, each with one row per input.
    """
    home = parts[0].device
    sums = [_sums(number, part).to(home) for number, part in enumerate(parts)]
    total = sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)
    return mixed(total + STEP)


def folds(keys: Int[Tensor, "batch 2"], count: int) -> Int[Tensor, "batch"]:
    """Deal inputs to folds: the first word of the content key, read as an unsigned number, modulo ``count``."""
    word = keys[:, 0]
    # A word whose sign bit is set stands for 2⁶⁴ more than its signed value.
    return (torch.remainder(word, count) + (word < 0) * (2**64 % count)) % count


def _sums(number: int, part: Tensor) -> Int[Tensor, "batch 2"]:
    """Sum the products of one part's words, in blocks: 64-bit copies of all words would be large."""
    words = _words(part)
    factors = _factors(number, words.shape[1], words.device)
    parts = [(words[rows, None] * factors).sum(2) for rows in blocks(len(words), 2 * words.shape[1], words.device)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else torch.zeros(0, 2, dtype=torch.int64, device=words.device)


def _words(part: Tensor) -> Int[Tensor, "batch words"]:
    """Cut each row into 32-bit words, zeros behind its last byte."""
    if part.is_complex():
        part = torch.view_as_real(part)
    rows = part.detach().contiguous().flatten(1) if part.dim() > 1 else part.detach().contiguous()[:, None]
    if rows.numel() == 0:
        return torch.zeros(len(part), 1, dtype=torch.int32, device=part.device)
    raw = rows.view(torch.uint8)
    missing = -raw.shape[1] % _WORD_BYTES
    if missing:
        raw = torch.nn.functional.pad(raw, (0, missing))
    return raw.view(torch.int32)


@lru_cache(maxsize=64)
def _factors(part: int, words: int, device: torch.device) -> Int[Tensor, "2 words"]:
    places = torch.arange(1, 2 * words + 1, device=device).reshape(words, 2)
    return (mixed((places + (part << 48)) * STEP) | 1).t().contiguous()
