"""Comparisons that the laws share: numbers to rounding, states to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov.core.criterion import State
from neuralcov.core.records import flatten, map_tensors


def same(found: Tensor, expected: Tensor, what: str, scale: float = 0.0) -> None:
    """Check equality to nine figures, or within 1e-11 of the size of the numbers they were computed from."""
    tolerance = 1e-9 * expected.abs() + 1e-11 * max(1.0, scale)
    assert bool(((found - expected).abs() <= tolerance).all()), (
        f"{what}: {found.tolist()}, expected {expected.tolist()}"
    )


def copied(state: State) -> State:
    """Copy a state with all its tensors."""
    return map_tensors(torch.clone, state)


def unchanged(state: State, kept: State, complaint: str) -> None:
    """Check that a state equals an earlier copy of it to the bit."""
    now: dict[str, Tensor] = {}
    then: dict[str, Tensor] = {}
    assert flatten(state, "", now) == flatten(kept, "", then), complaint
    for path, tensor in then.items():
        assert equal_bits(now[path], tensor), f"{complaint} ({path})"


def equal_bits(one: Tensor, other: Tensor) -> bool:
    """Compare two tensors to the bit, so that NaN equals itself and −0 differs from 0."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
