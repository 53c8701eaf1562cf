"""Content keys: 128 bits that tell inputs apart by their bytes, computed where the inputs are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neuralcov.core.mixing import STEP, mixed
from neuralcov.core.shapes import Int, Shaped
from neuralcov.core.sizes import blocks

_WORD_BYTES = 4
# Those of the shapes met last, since making them takes longer than using them.
_FACTORS: dict[tuple[int, int, torch.device], Tensor] = {}
_MOST_FACTORS = 64


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
    if rows.shape[1] == 0:
        return torch.zeros(len(part), 1, dtype=torch.int32, device=part.device)
    raw = rows.view(torch.uint8)
    missing = -raw.shape[1] % _WORD_BYTES
    if missing:
        raw = torch.nn.functional.pad(raw, (0, missing))
    return raw.view(torch.int32)


def _factors(part: int, words: int, device: torch.device) -> Int[Tensor, "2 words"]:
    """The random odd numbers that belong to the places of one part's words."""
    known = _FACTORS.get((part, words, device))
    if known is not None:
        return known
    places = torch.arange(1, 2 * words + 1, device=device).reshape(words, 2)
    factors = (mixed((places + (part << 48)) * STEP) | 1).t().contiguous()
    # Within a CUDA graph that is being recorded they exist once it is replayed, and for it alone.
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        while len(_FACTORS) >= _MOST_FACTORS:
            _FACTORS.pop(next(iter(_FACTORS)))
        _FACTORS[part, words, device] = factors
    return factors
