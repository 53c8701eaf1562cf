"""LVC's records as files of schema 1 hold them, under definition 1, and what they are today.

There moments were kept of the outputs as they are; whitening them gives the same volumes, so that such a state shows
the value it had. Inputs could not be kept apart, and blocks of inputs were dealt in another way than folds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.criterion import State
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.lvc.learnt import LVCLearnt
from neuralcov.criteria.lvc.room import Room
from neuralcov.criteria.lvc.suites import LVCState
from neuralcov.criteria.lvc.volume import TrainingCovariance
from neuralcov.statistics.moments import LayerMoments


@dataclass(frozen=True, eq=False)
class Yardstick(Record, name="neuralcov.core.volume:Yardstick"):
    """Mean and T of the layers of one width, and which of them vary."""

    mean: Float[Tensor, "layers width"]
    base: Float[Tensor, "layers width width"]
    alive: Bool[Tensor, "layers"]


@dataclass(frozen=True, eq=False)
class OldLearnt(Record, name="neuralcov.criteria.lvc:LVCFit"):
    """What LVC learnt, with one volume of reference for all layers."""

    yardsticks: tuple[Yardstick, ...]
    limit: Float[Tensor, ""]
    unit: Float[Tensor, ""]
    seen: int
    constant: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OldState(State, name="neuralcov.criteria.lvc:LVCState"):
    """Moments of outputs per block of inputs and group of layers."""

    blocks: tuple[tuple[LayerMoments, ...], ...]
    beyond: Int[Tensor, ""]


def upgraded(learnt: OldLearnt, state: OldState, layout: Layout) -> tuple[LVCLearnt, LVCState]:
    """Return what was learnt and observed under definition 1 in today's form, with the same values by layer."""
    training = tuple(TrainingCovariance.factorised(y.mean, y.base, y.alive) for y in learnt.yardsticks)
    folds = tuple(
        tuple(t.moments(moments) for t, moments in zip(training, block, strict=True)) for block in state.blocks
    )
    rooms = tuple(Room.empty(t.mean.shape[0], t.mean.shape[1], t.mean.device) for t in training)
    # One volume for all layers that vary gives the rows it gave then.
    volumes = tuple(torch.where(t.varies, learnt.unit, 0.0) for t in training)
    today = LVCLearnt(tuple(layout), training, learnt.limit, float("nan"), volumes, learnt.seen, learnt.constant)
    return today, LVCState(state.counts, state.widths, folds, rooms, state.beyond)
