"""Digests: 128-bit content keys of inputs, computed where the inputs are, and SHA-256 of tensors as files hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Int, Shaped

# Constants of SplitMix64 (Steele, Lea and Flood, 2014), as signed 64-bit numbers.
GOLDEN_RATIO = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
# The same for NumPy, made once: making a number takes as long as mixing a small array.
_ROUNDS = ((np.uint64(30), np.uint64(_FIRST + (1 << 64))), (np.uint64(27), np.uint64(_SECOND + (1 << 64))))
_LAST_SHIFT = np.uint64(31)


def splitmix64(numbers: Tensor) -> Tensor:
    """Mix numbers so that every bit of the result depends on every bit of the number.

    >>> import torch
    >>> splitmix64(torch.tensor([GOLDEN_RATIO]))[0].item() == 0xE220A8397B1DCDAF - (1 << 64)  # first of seed 0
    True
    """
    if numbers.device.type == "cpu":
        return _splitmix64_by_numpy(numbers)
    numbers = (numbers ^ _shifted(numbers, 30)) * _FIRST
    numbers = (numbers ^ _shifted(numbers, 27)) * _SECOND
    return numbers ^ _shifted(numbers, 31)


def splitmix64_words(numbers: np.ndarray) -> np.ndarray:
    """Mix an array of signed 64-bit numbers in the same way, where starting an operation of PyTorch takes longer."""
    words = numbers.view(np.uint64)
    for shift, factor in _ROUNDS:
        words = words ^ (words >> shift)
        words *= factor
    return (words ^ (words >> _LAST_SHIFT)).view(np.int64)


def _splitmix64_by_numpy(numbers: Tensor) -> Tensor:
    words = splitmix64_words(numbers.detach().reshape(-1).contiguous().numpy())
    return torch.from_numpy(words).reshape(numbers.shape)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """Shift right with zeros coming in, which PyTorch's shift of signed numbers does not do."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)


_WORD_BYTES = 4
_ROWS_AT_ONCE = 4096
# Those of the shapes met last, since making them takes longer than using them.
_FACTORS: dict[tuple[tuple[int, ...], torch.device], Tensor] = {}
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
    if all(part.device.type == "cpu" for part in parts):
        return torch.from_numpy(_keys_on_host(parts))
    cut = [_words(part) for part in parts]
    device = cut[0].device
    words = cut[0] if len(cut) == 1 else torch.cat([part.to(device) for part in cut], dim=1)
    factors = _factors(tuple(part.shape[1] for part in cut), device)
    total = torch.zeros(len(words), 2, dtype=torch.int64, device=device)
    for rows in blocks(len(words), 2 * words.shape[1], device):
        total[rows] = (words[rows, None].long() * factors).sum(2)
    return splitmix64(total + GOLDEN_RATIO)


def folds(keys: Int[Tensor, "batch 2"], count: int) -> Int[Tensor, "batch"]:
    """Deal inputs to folds: the first word of the content key, read as an unsigned number, modulo ``count``."""
    word = keys[:, 0]
    # A word whose sign bit is set stands for 2⁶⁴ more than its signed value.
    return (torch.remainder(word, count) + (word < 0) * (2**64 % count)) % count


def _keys_on_host(parts: Sequence[Tensor]) -> np.ndarray:
    """Compute the same by NumPy, which multiplies whole numbers several times faster on a CPU."""
    cut = [_words(part).numpy() for part in parts]
    words = cut[0] if len(cut) == 1 else np.concatenate(cut, axis=1)
    factors = _host_factors(tuple(part.shape[1] for part in cut))
    keys = np.einsum("ij,kj->ik", words, factors)
    return splitmix64_words(keys + np.int64(GOLDEN_RATIO))


def _words(part: Tensor) -> Int[Tensor, "batch words"]:
    """Cut each row into 32-bit words, zeros behind its last byte."""
    if part.is_complex():
        part = torch.view_as_real(part)
    rows = part.detach().contiguous()
    rows = rows.flatten(1) if rows.dim() > 1 else rows[:, None]
    if rows.numel() == 0:
        return torch.zeros(len(part), 1, dtype=torch.int32, device=part.device)
    if rows.element_size() % _WORD_BYTES:
        rows = rows.view(torch.uint8)
        rows = torch.nn.functional.pad(rows, (0, -rows.shape[1] % _WORD_BYTES))
    return rows.view(torch.int32)


def _factors(lengths: tuple[int, ...], device: torch.device) -> Int[Tensor, "2 words"]:
    """Return two random odd words for each place of parts that are so long."""
    known = _FACTORS.get((lengths, device))
    if known is not None:
        return known
    parts = []
    for number, words in enumerate(lengths):
        places = torch.arange(1, 2 * words + 1, device=device).reshape(words, 2)
        parts.append(splitmix64((places + (number << 48)) * GOLDEN_RATIO) | 1)
    factors = torch.cat(parts).T.contiguous()
    # Within a CUDA graph that is being recorded they exist once it is replayed, and for it alone.
    if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
        while len(_FACTORS) >= _MOST_FACTORS:
            _FACTORS.pop(next(iter(_FACTORS)))
        _FACTORS[lengths, device] = factors
    return factors


@lru_cache(maxsize=64)
def _host_factors(lengths: tuple[int, ...]) -> np.ndarray:
    return _factors(lengths, torch.device("cpu")).numpy()


def stored_parts(tensor: Tensor) -> Iterator[memoryview]:
    """Give the bytes of a tensor as files hold them, booleans as bits.

    A few thousand rows at a time, so that what is on disk or on a GPU never is in memory as a whole; bits whole, since
    rows need not end at a byte.
    """
    if tensor.dtype == torch.bool:
        yield np.packbits(tensor.detach().cpu().contiguous().numpy().reshape(-1)).data
        return
    if not tensor.numel():
        return
    for part in [tensor] if tensor.dim() < 2 else torch.split(tensor, _ROWS_AT_ONCE):
        yield part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def tensor_digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes, the one that files keep."""
    digest = hashlib.sha256()
    for part in stored_parts(tensor):
        digest.update(part)
    return digest.hexdigest()
