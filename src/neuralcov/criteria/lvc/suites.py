"""A state as suites whose volumes can be asked for: all of it, and with each fold left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neuralcov.core.criterion import State
from neuralcov.core.folds import FoldMoments, union, without
from neuralcov.core.moments import Moments
from neuralcov.core.shapes import Float, Int
from neuralcov.core.volume import Suite
from neuralcov.criteria.lvc.room import Room

Volumes = tuple[Float[Tensor, "_"], ...]


@dataclass(frozen=True, eq=False)
class LVCState(State, name="lvc"):
    """Whitened moments per fold and group of layers, long rows per group, and how many inputs lay beyond the limit."""

    folds: FoldMoments
    rooms: tuple[Room, ...]
    beyond: Int[Tensor, ""]


@dataclass(frozen=True, eq=False)
class Suites:
    """The suite of each group of layers, and what is left of it without each fold, where there are folds."""

    whole: tuple[Suite, ...]
    left_out: tuple[tuple[Suite, ...], ...] = ()

    @classmethod
    def of(cls, folds: FoldMoments, rooms: tuple[Room, ...] = (), *, far: bool = True) -> Self:
        """Build suites of moments by fold and of rows kept apart, the far ones among them only if ``far``."""

        def suites(moments: tuple[Moments, ...], fold: int | None = None) -> tuple[Suite, ...]:
            if not rooms:
                return tuple(Suite(m) for m in moments)
            here = [room.here(far=far) for room in rooms]
            if fold is not None:
                here = [there & (room.folds != fold) for there, room in zip(here, rooms, strict=True)]
            return tuple(Suite(m, room.rows, there) for m, room, there in zip(moments, rooms, here, strict=True))

        whole = union(folds)
        if len(folds) == 1:
            return cls(suites(whole))
        left_out = tuple(suites(without(whole, part), fold) for fold, part in enumerate(folds))
        return cls(suites(whole), left_out)

    def volumes(self) -> Volumes:
        """Return the volume of each layer by group, corrected by the jackknife where there are folds."""
        volumes = tuple(suite.volume for suite in self.whole)
        count = len(self.left_out)
        if not count:
            return volumes
        means = [torch.stack([part[group].volume for part in self.left_out]).mean(0) for group in range(len(volumes))]
        return tuple(count * v - (count - 1) * m for v, m in zip(volumes, means, strict=True))


_kept: WeakKeyDictionary[LVCState, Suites] = WeakKeyDictionary()


def suites_of(state: LVCState) -> Suites:
    """Return a state's suites, the same ones for as long as the state lives, so that factors are computed once."""
    if state not in _kept:
        _kept[state] = Suites.of(state.folds, state.rooms)
    return _kept[state]


def without_far(state: LVCState) -> Suites:
    """Return a state's suites with no far row counting."""
    return Suites.of(state.folds, state.rooms, far=False)
