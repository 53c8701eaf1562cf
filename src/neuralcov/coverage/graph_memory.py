"""The memory of recorded updates: copying inputs and states into it, comparing it with what plain calls gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.records import flatten


def copy_inputs(inputs: Any, place: Any) -> None:
    """Copy the tensors of a batch into those of a recording, a tree of the same form."""
    if isinstance(inputs, Tensor):
        place.copy_(inputs, non_blocking=True)
    elif isinstance(inputs, Mapping):
        for name, part in inputs.items():
            copy_inputs(part, place[name])
    elif isinstance(inputs, (tuple, list)):
        for part, there in zip(inputs, place, strict=True):
            copy_inputs(part, there)


def write_state(state: Any, home: Any) -> None:
    """Copy a state into the tensors of another of the same shape, of which it may have parts, each in its place."""
    pairs = _pairs(state, home)
    places = {target.data_ptr(): index for index, (_, target) in enumerate(pairs) if target.numel()}
    for index, (source, target) in enumerate(pairs):
        if target.data_ptr() == source.data_ptr():
            continue
        if source.numel() and places.get(source.data_ptr(), index) != index:
            raise AssertionError(f"{type(home).__name__} has a part in the place of another")
        target.copy_(source)


def alike(one: Any, other: Any) -> bool:
    """Return whether two tensors, or two states of one shape, hold the same numbers; waits for the device."""
    pairs = [(one, other)] if isinstance(one, Tensor) else _pairs(one, other)
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return False
    found = [((a == b) | ((a != a) & (b != b))).all() for a, b in pairs if a.numel()]
    return not found or bool(torch.stack(found).all())


def _pairs(state: Any, home: Any) -> list[tuple[Tensor, Tensor]]:
    source: dict[str, Tensor] = {}
    target: dict[str, Tensor] = {}
    if flatten(state, "", source) != flatten(home, "", target):
        raise AssertionError(f"{type(home).__name__} is not of a fixed size")
    return [(source[name], tensor) for name, tensor in target.items()]


def free_random_numbers(device: torch.device, state: Tensor) -> None:
    """Give a device a generator of random numbers that no recording holds.

    A recording that fails keeps PyTorch's own, which then refuses every further random number on that device.
    """
    fresh = torch.Generator(device)
    fresh.set_state(state)
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())
