"""A state as suites whose volumes can be asked for: all of it, and with each fold left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neuralcov.core.criterion import State
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.lvc.folds import FoldMoments, leaving_out, union
from neuralcov.criteria.lvc.room import Room
from neuralcov.criteria.lvc.volume import Suite
from neuralcov.statistics.moments import LayerMoments

Volumes = tuple[Float[Tensor, "_"], ...]


@dataclass(frozen=True, eq=False)
class LVCState(State, name="lvc"):
    """Whitened moments per fold and group of layers, long rows per group, and how many inputs lay beyond the limit."""

    folds: FoldMoments
    rooms: tuple[Room, ...]
    beyond: Int[Tensor, ""]


@dataclass(frozen=True, eq=False)
class Suites:
    """The suite of each group of layers, and what is left of it without each fold, where there are several.

    Without ``far`` no far row counts. Factors of the whole are kept, of the rest only their volumes: they would take as
    much memory as the state once more for every fold.
    """

    folds: FoldMoments
    rooms: tuple[Room, ...] = ()
    far: bool = True

    @cached_property
    def whole(self) -> tuple[Suite, ...]:
        """Return the suites of all inputs."""
        return self._suites(union(self.folds), None)

    def left_out(self) -> Iterator[tuple[Suite, ...]]:
        """Yield the suites of all inputs but those of each fold; none where there is one fold only."""
        for fold, moments in enumerate(leaving_out(self.folds)):
            yield self._suites(moments, fold)

    @cached_property
    def left_out_volumes(self) -> tuple[Volumes, ...]:
        """Return the volumes without each fold; none where there is one fold only."""
        return tuple(tuple(suite.volume for suite in suites) for suites in self.left_out())

    @cached_property
    def volumes(self) -> Volumes:
        """Return the volume of each layer by group, corrected by the jackknife where there are folds."""
        volumes = tuple(suite.volume for suite in self.whole)
        count = len(self.left_out_volumes)
        if not count:
            return volumes
        means = [torch.stack(parts).mean(0) for parts in zip(*self.left_out_volumes, strict=True)]
        return tuple(count * v - (count - 1) * m for v, m in zip(volumes, means, strict=True))

    def _suites(self, moments: tuple[LayerMoments, ...], fold: int | None) -> tuple[Suite, ...]:
        rooms: Sequence[Room | None] = self.rooms or [None] * len(moments)
        return tuple(self._suite(m, room, fold) for m, room in zip(moments, rooms, strict=True))

    def _suite(self, moments: LayerMoments, room: Room | None, fold: int | None) -> Suite:
        # Where looking is free, a room without rows is passed by.
        if room is None or (room.met.device.type == "cpu" and not room.met.any()):
            return Suite(moments)
        here = room.here(far=self.far)
        return Suite(moments, room.rows, here if fold is None else here & (room.folds != fold))


_kept: WeakKeyDictionary[LVCState, Suites] = WeakKeyDictionary()


def suites_of(state: LVCState) -> Suites:
    """Return a state's suites, the same ones for as long as the state lives, so that factors are computed once."""
    if state not in _kept:
        _kept[state] = Suites(state.folds, state.rooms)
    return _kept[state]
