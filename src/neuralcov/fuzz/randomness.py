"""Draw random numbers as a pure function: of a campaign's seed and a wave, or of one number per input."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.digests import GOLDEN_RATIO, splitmix64


def wave_generator(seed: int, wave: int, track: int = 0) -> np.random.Generator:
    """Return the generator of one wave; it gives the same for the same numbers, whatever came before.

    >>> first, again, other = (float(wave_generator(1, wave).random()) for wave in (7, 7, 8))
    >>> first == again, first == other, first == float(wave_generator(1, 7, track=1).random())
    (True, False, False)
    """
    # Tracks begin 2^192 numbers apart in the stream of a wave.
    counter = np.array([0, 0, 0, track], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=np.array([seed, wave], dtype=np.uint64), counter=counter))


def choices(chances: np.ndarray, count: int) -> np.ndarray:
    """Turn numbers in [0, 1) into whole numbers below ``count``."""
    return np.minimum((chances * count).astype(np.int64), count - 1)


def uniform(keys: Tensor, index: int | Tensor) -> Tensor:
    """Return numbers in [0, 1), each a function of its key and ``index``, computed where the keys lie.

    >>> keys = torch.tensor([5, 6, 5])
    >>> first = uniform(keys, 0)
    >>> bool(first[0] == first[2]), bool(first[0] == first[1]), bool(first[0] == uniform(keys, 1)[0])
    (True, False, False)
    """
    step = (index + 1) * GOLDEN_RATIO if isinstance(index, Tensor) else _wrapped((index + 1) * GOLDEN_RATIO)
    # 24 bits: what float32 holds, for devices without float64.
    return (splitmix64(keys + step) >> 40 & 0xFFFFFF).float() / (1 << 24)


def _wrapped(number: int) -> int:
    """Return a number as 64 signed bits hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """Return a generator of PyTorch on a device, for functions that want one."""
    return torch.Generator(device).manual_seed(seed)
