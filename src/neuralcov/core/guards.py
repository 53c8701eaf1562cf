"""What methods that keep tensors are wrapped in: one thread at a time, and never within inference mode."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor

from neuralcov.core.activations import Activations

P = ParamSpec("P")
R = TypeVar("R")


class Turn(RLock):  # type: ignore[misc]  # final in its type stubs alone
    """Lock for one thread at a time, which may take it as often as it likes. A copy is a lock of its own."""

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


class TakesTurns(Protocol):
    """Have a lock, by which threads use this one at a time."""

    turn: Turn


S = TypeVar("S", bound=TakesTurns)


def ordinary_tensors(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function outside inference mode, so that tensors it keeps may be overwritten anywhere.

    Tensors made within inference mode cannot be overwritten outside. A state that was, and then was updated outside,
    would be lost half-way.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)

    return run


def in_turn(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a method that keeps tensors in one thread at a time, and outside inference mode."""

    @wraps(method)
    def run(owner: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with owner.turn:
            if not torch.is_inference_mode_enabled():
                return method(owner, *args, **kwargs)
            with torch.inference_mode(False), torch.no_grad():
                return method(owner, *args, **kwargs)

    return run


def with_ordinary_tensors(batch: Activations) -> Activations:
    """Return the same batch, with tensors made within inference mode copied, since states may come to hold them."""
    parts = {part.name: getattr(batch, part.name) for part in fields(batch) if part.init}
    if not any(tensor.is_inference() for part in parts.values() for tensor in _tensors(part)):
        return batch
    with torch.inference_mode(False), torch.no_grad():
        return Activations(**{name: _copied(part) for name, part in parts.items()})


def _tensors(part: Any) -> Iterable[Tensor]:
    if isinstance(part, Tensor):
        return (part,)
    # Names of inputs are no tensors.
    return (value for value in part.values() if isinstance(value, Tensor)) if isinstance(part, Mapping) else ()


def _copied(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.clone() if part.is_inference() else part
    return {name: _copied(value) for name, value in part.items()} if isinstance(part, Mapping) else part
