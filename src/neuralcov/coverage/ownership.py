"""Who may overwrite a state: only the one who owns it, and only once.

A donated observation writes into its state's tensors, which saves a copy of every covariance at every batch. It must
not reach tensors that somebody else keeps. So a collection holds no bare states; each is one of three kinds:

- ``Owned``: nobody else has its tensors. Only this kind can be donated. Donating uses it up, so that an update
  that is interrupted half-way leaves no state that looks right.
- ``Shared``: somebody else may have its tensors: a snapshot, a copy, another coverage, a file. Nothing writes to
  them, and a shared state never becomes an owned one.
- ``GraphOwned``: it lies where a CUDA graph writes at its next replay. It is copied before anybody keeps it or
  goes on from it.

What a criterion makes of a shared state is owned if no tensor of it lies in the memory of the shared one. That is
looked up, not trusted: criteria may hand on the parts that did not change.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion, State, with_excluded
from neuralcov.core.errors import InputError
from neuralcov.core.records import Record, map_tensors
from neuralcov.core.shapes import Int

StateT = TypeVar("StateT", bound=State)


class Holding(ABC, Generic[StateT]):
    """Hold a state, and say who may overwrite it."""

    def __init__(self, state: StateT) -> None:
        self._state: StateT | None = state

    @property
    def state(self) -> StateT:
        """Return the state, to be read at once; to keep it, ``share`` it."""
        if self._state is None:
            raise InputError(
                "an update was interrupted while it overwrote the state, which is worth nothing now: "
                "restore a snapshot, load a file, or reset() and measure again"
            )
        return self._state

    def give_up(self) -> StateT:
        """Take the state out; from now on this holding says that the update was interrupted."""
        state, self._state = self.state, None
        return state

    @abstractmethod
    def share(self) -> Shared[StateT]:
        """Turn into a shared state, for good."""

    @abstractmethod
    def observe(self, criterion: Criterion[StateT], batch: Activations) -> Holding[StateT]:
        """Observe a batch, in place if nobody else has the state."""

    @abstractmethod
    def admit(
        self, criterion: Criterion[StateT], batch: Activations, min_gain: float
    ) -> tuple[Tensor, Holding[StateT]]:
        """Admit inputs of a batch; say which, and hold the state after them."""

    @abstractmethod
    def merge(self, criterion: Criterion[StateT], other: Shared[StateT]) -> Holding[StateT]:
        """Merge a shared state in, and leave that one as it is."""

    @abstractmethod
    def exclude(self, exclusions: Int[Tensor, "some"]) -> Holding[StateT]:
        """Count inputs that the criterion excluded, and change nothing else."""


class Owned(Holding[StateT]):
    """Hold a state whose tensors nobody else has."""

    @override
    def share(self) -> Shared[StateT]:
        """Share the state; this holding is used up."""
        return Shared(self.give_up())

    @override
    def observe(self, criterion: Criterion[StateT], batch: Activations) -> Owned[StateT]:
        """Observe a batch in place; this holding is used up."""
        return Owned(criterion.observe(self.give_up(), batch, donate=True))

    @override
    def admit(self, criterion: Criterion[StateT], batch: Activations, min_gain: float) -> tuple[Tensor, Owned[StateT]]:
        """Admit inputs; this holding is used up once that is done."""
        admitted, after = criterion.admit(self.state, batch, min_gain=min_gain)
        self.give_up()
        return admitted, Owned(after)

    @override
    def merge(self, criterion: Criterion[StateT], other: Shared[StateT]) -> Holding[StateT]:
        """Merge a shared state in; this holding is used up once that is done."""
        if type(criterion).merge_in is not Criterion.merge_in:
            return _made(criterion.merge_in(self.give_up(), other.state), other)
        merged = criterion.merge(self.state, other.state)
        self.give_up()
        return _made(merged, other)

    @override
    def exclude(self, exclusions: Int[Tensor, "some"]) -> Owned[StateT]:
        """Count excluded inputs; this holding is used up."""
        return Owned(with_excluded(self.give_up(), exclusions))


class Shared(Holding[StateT]):
    """Hold a state whose tensors somebody else may have."""

    @override
    def share(self) -> Shared[StateT]:
        """Return this holding: it is shared already."""
        return self

    @override
    def observe(self, criterion: Criterion[StateT], batch: Activations) -> Holding[StateT]:
        """Observe a batch and leave this state as it is."""
        return _made(criterion.observe(self.state, batch), self)

    @override
    def admit(
        self, criterion: Criterion[StateT], batch: Activations, min_gain: float
    ) -> tuple[Tensor, Holding[StateT]]:
        """Admit inputs and leave this state as it is."""
        admitted, after = criterion.admit(self.state, batch, min_gain=min_gain)
        return admitted, _made(after, self)

    @override
    def merge(self, criterion: Criterion[StateT], other: Shared[StateT]) -> Holding[StateT]:
        """Merge another shared state in and leave both as they are."""
        return _made(criterion.merge(self.state, other.state), self, other)

    @override
    def exclude(self, exclusions: Int[Tensor, "some"]) -> Holding[StateT]:
        """Count excluded inputs and leave this state as it is."""
        return _made(with_excluded(self.state, exclusions), self)


class GraphOwned(Holding[StateT]):
    """Hold a state in the tensors of a CUDA graph, which overwrites them at its next replay.

    Args:
        home: the tensors, the same at every replay.
    """

    def __init__(self, home: StateT) -> None:
        super().__init__(home)
        self.home = home
        self._seen = False

    @property
    @override
    def state(self) -> StateT:
        """Return the state, to be read at once, as a record of its own.

        What was computed from a record may be kept for as long as the record is there, so that one record must not
        stand for the states after two replays.
        """
        if not self._seen:
            self._state, self._seen = map_tensors(lambda tensor: tensor, super().state), True
        return super().state

    def copy(self) -> Owned[StateT]:
        """Copy the state out of the graph's tensors."""
        return Owned(map_tensors(torch.clone, self.state))

    @override
    def share(self) -> Shared[StateT]:
        """Share a copy."""
        return self.copy().share()

    @override
    def observe(self, criterion: Criterion[StateT], batch: Activations) -> Owned[StateT]:
        """Observe a batch on a copy."""
        return self.copy().observe(criterion, batch)

    @override
    def admit(self, criterion: Criterion[StateT], batch: Activations, min_gain: float) -> tuple[Tensor, Owned[StateT]]:
        """Admit inputs on a copy."""
        return self.copy().admit(criterion, batch, min_gain)

    @override
    def merge(self, criterion: Criterion[StateT], other: Shared[StateT]) -> Holding[StateT]:
        """Merge a shared state into a copy."""
        return self.copy().merge(criterion, other)

    @override
    def exclude(self, exclusions: Int[Tensor, "some"]) -> Owned[StateT]:
        """Count excluded inputs on a copy."""
        return self.copy().exclude(exclusions)


def own(state: StateT, *others: Any) -> Holding[StateT]:
    """Hold a state that was just read from a file and that nobody else has, unless others share its memory."""
    tensors = [tensor for tensor in _tensors(state) if tensor.numel()]
    apart = len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)
    return Owned(state) if apart and _memory(state).isdisjoint(_memory(tuple(others))) else Shared(state)


def _made(state: StateT, *sources: Shared[StateT]) -> Holding[StateT]:
    """Hold a state that a criterion made of shared ones: it is shared as well if it goes on with their tensors."""
    kept = tuple(source.state for source in sources)
    return Owned(state) if _memory(state).isdisjoint(_memory(kept)) else Shared(state)


def _memory(tree: Any) -> set[tuple[torch.device, int]]:
    """List where the tensors of states lie; a tensor without elements lies nowhere."""
    return {(t.device, t.untyped_storage().data_ptr()) for t in _tensors(tree) if t.numel()}


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Record):
        for field in dataclasses.fields(tree):  # type: ignore[arg-type]
            yield from _tensors(getattr(tree, field.name))
    elif isinstance(tree, tuple):
        for item in tree:
            yield from _tensors(item)
