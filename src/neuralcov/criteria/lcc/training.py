"""What LCC learns: the kinds that training data show in every layer, and what a suite of their like would show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.abundance import discounted, expected_share, rarity
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.kind_set import FOLD_COUNT, MARK, differs_from_before, find
from neuralcov.kernels.hashing import lexical_order

NEW_DECISION, OFF_THE_MAP = 0, -1
"""Marks of kinds that no training input showed: in a box that training showed, or in one that it did not."""

# Fewer training inputs say too little about how a fold of them does against the others.
_ENOUGH = 100


@dataclass(frozen=True, eq=False)
class TrainingTable(Record, name="lcc-table"):
    """The keys of all kinds of training data with their counts, and of all boxes, sorted by their first words."""

    kinds: Int[Tensor, "kinds 2"]
    counts: Int[Tensor, "kinds"]
    boxes: Int[Tensor, "boxes 2"]

    def marks(self, boxes: Int[Tensor, "some 2"], kinds: Int[Tensor, "some 2"]) -> Int[Tensor, "some"]:
        """Return how many training inputs showed each kind; for the others, whether any showed its box."""
        at, known = find(self.kinds, kinds)
        if not len(self.counts):
            return torch.full((len(kinds),), OFF_THE_MAP, dtype=MARK, device=kinds.device)
        shown = self.counts[at.clamp(max=len(self.counts) - 1)]
        return torch.where(known, shown, torch.where(find(self.boxes, boxes)[1], NEW_DECISION, OFF_THE_MAP))

    @property
    def size(self) -> int:
        """Return how many bytes it takes."""
        return sum(part.numel() * part.element_size() for part in (self.kinds, self.counts, self.boxes))


@dataclass(frozen=True, eq=False)
class TrainingKinds(Record, name="lcc-training", free=["decisions"]):
    """The kinds of training data.

    Args:
        names: the layers.
        decisions: whether the model's decision is part of a kind.
        mean: of the projections of the valid training inputs.
        std: their standard deviation; 0 along directions that count as constant.
        layers: the layers that count; the others were constant in training, or had fewer than two valid inputs.
        levels: all counts that some kind has, rising.
        numbers: how many kinds of each layer have each count.
        correction: b, what folds of training data show against the others, as a share of what is expected of them.
        off_map: the share of fresh training inputs whose box no other showed, by the same folds.
        table: the kinds themselves; ``None`` where they stay in the saved calibration.
    """

    names: tuple[str, ...]
    decisions: bool
    mean: Float[Tensor, "layers directions"]
    std: Float[Tensor, "layers directions"]
    layers: Int[Tensor, "counting"]
    levels: Int[Tensor, "levels"]
    numbers: Int[Tensor, "layers levels"]
    correction: Float[Tensor, "layers"]
    off_map: Float[Tensor, "layers"]
    table: TrainingTable | None

    def __post_init__(self) -> None:
        if self.numbers.shape[-1] != len(self.levels):
            raise ValueError(f"{self.numbers.shape[-1]} numbers of kinds for {len(self.levels)} levels")

    @classmethod
    def template(cls, layout: Layout, directions: int) -> tuple[TrainingKinds, TrainingKinds]:
        """Return the form of what is learnt on these layers, and the same without a table."""
        count, device = len(layout), layout.device
        words = torch.zeros(0, 2, dtype=torch.int64, device=device)
        number, real = (
            torch.zeros(count, 0, dtype=torch.int64, device=device),
            torch.zeros(count, device=device).double(),
        )
        cuts = torch.zeros(count, directions, dtype=torch.float64, device=device)
        table = TrainingTable(words, words[:, 0].to(MARK), words)
        whole = cls(tuple(layout), True, cuts, cuts, words[:, 0], number[0], number, real, real, table)
        return whole, replace(whole, table=None)

    @cached_property
    def weights(self) -> Float[Tensor, "levels_and_one"]:
        """Return what a kind of each level counts, and behind them a new decision."""
        return torch.cat([rarity(self.levels), torch.ones(1, dtype=torch.float64, device=self.levels.device)])

    @cached_property
    def total(self) -> Float[Tensor, "layers"]:
        """Return W, what all training kinds of each layer count together."""
        none = torch.zeros(len(self.numbers), 1, dtype=torch.int64, device=self.numbers.device)
        return self.weigh(torch.cat([self.numbers, none], dim=1))

    @cached_property
    def inputs(self) -> Int[Tensor, "layers"]:
        """Return N, how many training inputs showed a kind in each layer."""
        return (self.levels * self.numbers).sum(1)

    def weigh(self, numbers: Int[Tensor, "*rows layers levels_and_one"]) -> Float[Tensor, "*rows layers"]:
        """Return what so many kinds of each level count together, summed in one order whatever order they came in."""
        return (numbers * self.weights).sum(-1)

    def expected(self, inputs: Float[Tensor, "*rows layers"]) -> Float[Tensor, "*rows layers"]:
        """Return the values that so many fresh training inputs are expected to have, b·E(n)."""
        probability = discounted(self.levels, self.numbers)
        share = expected_share(probability, self.numbers * rarity(self.levels), inputs)
        return self.correction * share

    @cached_property
    def counting(self) -> Bool[Tensor, "layers"]:
        """Return which layers count, as a mask."""
        counting = torch.zeros(len(self.names), dtype=torch.bool, device=self.layers.device)
        return counting.index_fill_(0, self.layers, True)

    @cached_property
    def left_out(self) -> tuple[str, ...]:
        """Name the layers that do not count."""
        counting = set(self.layers.tolist())
        return tuple(name for place, name in enumerate(self.names) if place not in counting)


@dataclass(frozen=True, eq=False)
class LayerKinds:
    """The kinds that training inputs showed in one layer, and what folds of these inputs show against the others."""

    kinds: Int[Tensor, "kinds 2"]
    counts: Int[Tensor, "kinds"]
    boxes: Int[Tensor, "boxes 2"]
    correction: float
    off_map: float

    @classmethod
    def of(cls, boxes: Int[Tensor, "n 2"], kinds: Int[Tensor, "n 2"], folds: Int[Tensor, "n"]) -> LayerKinds:
        """Count the kinds of a layer's training inputs, given each input's box, kind and fold."""
        box_keys, box_of = _numbered(boxes)
        kind_keys, kind_of = _numbered(kinds)
        by_fold = _by_fold(kind_of, folds, len(kind_keys))
        # Any input of a kind tells the kind's box.
        box_of_kind = torch.empty(len(kind_keys), dtype=torch.int64, device=kinds.device)
        box_of_kind[kind_of] = box_of
        boxes_by_fold = _by_fold(box_of, folds, len(box_keys))
        known = (boxes_by_fold.sum(1, keepdim=True) > boxes_by_fold)[box_of_kind]
        correction, off_map = _against_the_others(by_fold, known)
        return cls(kind_keys, by_fold.sum(1), box_keys, correction, off_map)


def _numbered(keys: Int[Tensor, "n 2"]) -> tuple[Int[Tensor, "distinct 2"], Int[Tensor, "n"]]:
    """Return the distinct keys, sorted, and the number of each one given."""
    order = lexical_order(keys)
    ordered = keys[order]
    first = differs_from_before(ordered)
    number = torch.empty_like(order)
    number[order] = first.cumsum(0) - 1
    return ordered[first], number


def _by_fold(number: Int[Tensor, "n"], folds: Int[Tensor, "n"], count: int) -> Int[Tensor, "count folds"]:
    return torch.bincount(number * FOLD_COUNT + folds, minlength=count * FOLD_COUNT).view(count, FOLD_COUNT)


def _against_the_others(own: Int[Tensor, "kinds folds"], known_box: Bool[Tensor, "kinds folds"]) -> tuple[float, float]:
    """Return the mean over folds of value / E, and of the share off the map, each fold a suite against all others.

    ``own`` counts each kind by fold, ``known_box`` says whether a fold's others showed the kind's box.
    """
    others = own.sum(1, keepdim=True) - own
    inputs, rest = own.sum(0), others.sum(0)
    weights = torch.where(others > 0, rarity(others.clamp(min=1)), 0.0)
    total = weights.sum(0)
    usable = (inputs > 0) & (rest > 0)
    shown = torch.where(others > 0, weights, known_box.double())
    values = torch.where(own > 0, shown, 0.0).sum(0) / total
    probability = discounted(others.T, (others > 0).long().T)
    expected = expected_share(probability, weights.T, inputs.double())
    unknown = torch.where(known_box, 0, own).sum(0).double() / inputs
    off_map = float(unknown[usable].mean()) if bool(usable.any()) else torch.nan
    usable &= expected > 0
    enough = int(inputs.sum()) >= _ENOUGH and bool(usable.any())
    return float((values / expected)[usable].mean()) if enough else 1.0, off_map
