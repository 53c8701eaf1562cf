"""What criteria that tick off cells keep: the cells that are covered, and which folds of the inputs hit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from neuralcov.core.criterion import State
from neuralcov.core.layout import group_by_width
from neuralcov.core.shapes import Bool, Int
from neuralcov.core.side_by_side import SideBySide


@dataclass(frozen=True, eq=False)
class BitmapState(State, name="bitmap", optional=("folds", "by_fold")):
    """Which cells of neurons are covered, per group of layers: ``(layers, width, 1 + cells)``.

    Cell 0 stands for "nothing hit" and is always covered, so that a rule may point every neuron of every input
    somewhere and no mask is needed. With a single cell per neuron it is left out and the shape is ``(layers, width)``.

    ``folds`` says of each cell which folds of the inputs have hit it, a bit for each; ``by_fold`` counts the inputs of
    each fold. Both are ``None`` if nobody asks for errors, or once inputs came in of which it is not known.
    """

    covered: tuple[Bool[Tensor, "_layers _width ..."], ...]
    folds: tuple[Int[Tensor, "_layers _width ..."], ...] | None = None
    by_fold: Int[Tensor, "folds"] | None = None


# Under the name that files know it by: NPC's was the first.
@dataclass(frozen=True, eq=False)
class FlatBitmapState(State, name="npc", optional=("folds", "by_fold")):
    """Which cells are covered that belong to no neuron, in the shape the criterion gives them; folds as above."""

    covered: Bool[Tensor, "..."]
    folds: Int[Tensor, "..."] | None = None
    by_fold: Int[Tensor, "folds"] | None = None


AnyBitmap = BitmapState | FlatBitmapState
Folds = tuple[Sequence[Tensor], Tensor]


def parts_of(state: AnyBitmap) -> Sequence[Tensor]:
    """Return the bitmaps of a state."""
    return (state.covered,) if isinstance(state, FlatBitmapState) else state.covered


def folds_of(state: AnyBitmap) -> Folds | None:
    """Return which folds have hit each cell, a word for each, and how many inputs they have; ``None`` if unknown."""
    if state.folds is None or state.by_fold is None:
        return None
    return (state.folds,) if isinstance(state.folds, Tensor) else state.folds, state.by_fold


def by_place(widths: Sequence[int], per_group: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return one row of neurons a layer, in execution order, from rows that stand by group."""
    groups = group_by_width({str(place): width for place, width in enumerate(widths)})
    places = [place for group in groups for place in group.positions]
    rows = dict(zip(places, (row for some in per_group for row in some), strict=True))
    return tuple(rows[place] for place in range(len(widths)))


def joined_bitmaps(a: BitmapState, b: BitmapState, layers: SideBySide, *, folded: bool) -> BitmapState:
    """Return the cells of the layers of both; ``folded`` says whether the folds of both have the same inputs."""
    state = BitmapState(a.counts, layers.widths, layers.groups(a.covered, b.covered))
    if not folded or a.folds is None or b.folds is None:
        return state
    return replace(state, folds=layers.groups(a.folds, b.folds), by_fold=a.by_fold)
