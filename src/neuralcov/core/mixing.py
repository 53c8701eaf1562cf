"""SplitMix64 (Steele, Lea and Flood, 2014) on tensors: whole numbers in, numbers that look random out."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Its constants, as signed 64-bit numbers.
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def mixed(numbers: Tensor) -> Tensor:
    """Every bit of the result depends on every bit of the number.

    >>> import torch
    >>> mixed(torch.tensor([STEP]))[0].item() == 0xE220A8397B1DCDAF - (1 << 64)  # the first number of seed 0
    True
    """
    if numbers.device.type == "cpu":
        return _mixed_by_numpy(numbers)
    numbers = (numbers ^ _shifted(numbers, 30)) * _FIRST
    numbers = (numbers ^ _shifted(numbers, 27)) * _SECOND
    return numbers ^ _shifted(numbers, 31)


def mixed_words(numbers: np.ndarray) -> np.ndarray:
    """The same on an array of signed 64-bit numbers, where starting an operation of PyTorch takes longer than it."""
    words = numbers.view(np.uint64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(_FIRST + (1 << 64))
    words = (words ^ (words >> np.uint64(27))) * np.uint64(_SECOND + (1 << 64))
    return (words ^ (words >> np.uint64(31))).view(np.int64)


def _mixed_by_numpy(numbers: Tensor) -> Tensor:
    words = mixed_words(numbers.detach().reshape(-1).contiguous().numpy())
    return torch.from_numpy(words).reshape(numbers.shape)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros coming in, which PyTorch's shift of signed numbers does not do."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
