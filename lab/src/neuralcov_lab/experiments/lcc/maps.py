"""Map the ground that training data cover, and place suites on it: kinds as columns of one table per layer.

All tables have a row per layer, padded to the longest, so that every step is one operation for all layers and sums are
the same however often they are taken. Kinds of training data come first, in the order of their keys; kinds that only a
suite shows follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.lcc.boxes import boxes_and_kinds, offsets, starts
from neuralcov_lab.experiments.lcc.projections import FOLDS, Directions, Projections

_NONE = torch.iinfo(torch.int64).max
_CONSTANT = 2.0**-48
LEAST_FOR_FOLDS = 100
DIRECTIONS = Directions()


@dataclass(frozen=True)
class Cut:
    """Say how outputs are cut into kinds.

    Args:
        resolution: boxes per standard deviation.
        directions: along which they are cut.
        decision: whether the predicted class is part of a kind.
    """

    resolution: float = 0.5
    directions: Directions = DIRECTIONS
    decision: bool = True


@dataclass(frozen=True, eq=False)
class Frame:
    """Hold the cuts of every layer: where outputs lie on average, how far they spread, and where steps begin.

    ``std`` is 0 along directions that count as constant.
    """

    cut: Cut
    start: Int[Tensor, "layers 2"]
    offsets: Float[Tensor, "layers directions"]
    mean: Float[Tensor, "layers directions"]
    std: Float[Tensor, "layers directions"]

    @classmethod
    def learn(cls, training: Projections, cut: Cut) -> Frame:
        """Take mean and spread over the valid training inputs."""
        places = training.places[cut.directions]
        weights = training.valid.double()[:, :, None]
        count = weights.sum(1).clamp(min=1)
        mean = (places * weights).sum(1) / count
        std = ((places - mean[:, None]).square() * weights).sum(1).div(count).sqrt()
        std = torch.where(std > _CONSTANT * (places * weights).abs().amax(1), std, 0.0)
        seed, device = cut.directions.seed, places.device
        begin = offsets(tuple(training.widths.items()), cut.directions.count, seed, device)
        return cls(cut, starts(tuple(training.widths), seed, device), begin, mean, std)

    def only(self, layers: Tensor) -> Frame:
        """Return the cuts of some layers."""
        return Frame(self.cut, self.start[layers], self.offsets[layers], self.mean[layers], self.std[layers])

    def keys(self, suite: Projections) -> tuple[Int[Tensor, "layers n"], Int[Tensor, "layers n"]]:
        """Return the keys of the boxes and of the kinds that inputs show; the largest number for none.

        Of LCC's two words the first is enough to tell some millions of kinds apart.
        """
        places = suite.places[self.cut.directions].contiguous()
        cuts = (self.mean, self.std, self.offsets)
        decisions = suite.decisions if self.cut.decision else None
        boxes, kinds = boxes_and_kinds(places, self.cut.resolution, cuts, self.start, decisions)
        return boxes[..., 0].masked_fill(~suite.valid, _NONE), kinds[..., 0].masked_fill(~suite.valid, _NONE)


@dataclass(frozen=True, eq=False)
class Suite:
    """Hold inputs placed on a map.

    Args:
        columns: the column of each input's kind.
        valid: which inputs show a kind in which layer.
        folds: the tenth of the inputs that each belongs to.
        width: how many columns there are.
        on_map: of the columns behind those of training data, whether training data show the box.
    """

    columns: Int[Tensor, "layers n"]
    valid: Bool[Tensor, "layers n"]
    folds: Int[Tensor, "n"]
    width: int
    on_map: Bool[Tensor, "layers extra"]

    def __len__(self) -> int:
        return len(self.folds)

    def counts(self, rows: Tensor | None = None) -> Int[Tensor, "layers width"]:
        """Count how often each kind was shown, by all inputs or by some of them."""
        return _count(*self._chosen(rows), self.width)

    def counts_by_fold(self, rows: Tensor | None = None) -> Int[Tensor, "folds layers width"]:
        """Count the same fold by fold."""
        return _count_by_fold(*self._chosen(rows), self._folds(rows), self.width)

    def shown_by_fold(self, rows: Tensor) -> tuple[Int[Tensor, "layers shown"], Int[Tensor, "folds layers shown"]]:
        """Return the columns of the kinds that some inputs show, padded with any, and their counts fold by fold."""
        columns, valid = self._chosen(rows)
        shown, place = _group(columns.masked_fill(~valid, _NONE))
        return shown.clamp(max=self.width - 1), _count_by_fold(place, valid, self._folds(rows), shown.shape[1])

    def _folds(self, rows: Tensor | None) -> Int[Tensor, "n"]:
        return self.folds if rows is None else self.folds[rows]

    def _chosen(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        return (self.columns, self.valid) if rows is None else (self.columns[:, rows], self.valid[:, rows])


@dataclass(frozen=True, eq=False)
class Fresh:
    """Hold what a fold of the training inputs shows against the others, by layer, as means over folds.

    Args:
        bias: b of the definition: value over expectation.
        off_map: share of its inputs whose box the others do not show.
        known: the part of the value that belongs to kinds the others show, over expectation.
        new: number of new decisions.
        once: of these, those that one input shows.
        twice: those that two inputs show.
        inputs: of the fold.
    """

    bias: Float[Tensor, "layers"]
    off_map: Float[Tensor, "layers"]
    known: Float[Tensor, "layers"]
    new: Float[Tensor, "layers"]
    once: Float[Tensor, "layers"]
    twice: Float[Tensor, "layers"]
    inputs: Float[Tensor, "layers"]

    def new_decisions(self, inputs: Float[Tensor, "layers"]) -> Float[Tensor, "layers"]:
        """Return how many new decisions so many fresh training inputs should show.

        Below the size of a fold they grow as they do at its end; above it towards the number that Chao1 expects.
        """
        size = self.inputs.clamp(min=1)
        steepness = self.once / self.new.clamp(min=1e-300)
        to_come = (self.once.square() / (2 * self.twice.clamp(min=0.1))).clamp(min=1e-300)
        further = self.new - to_come * torch.expm1(-(inputs - size) * self.once / (size * to_come))
        return torch.where(inputs > size, further, self.new * (inputs / size) ** steepness)


@dataclass(frozen=True, eq=False)
class Map:
    """Hold the kinds of training data with their counts, and where they expect fresh training inputs.

    Args:
        frame: the cuts; only of the layers that are not constant.
        layers: the layers' places in execution order.
        kinds: keys in order, padded.
        boxes: the same of boxes.
        counts: training inputs by kind, 0 in the padding.
        fresh: what folds of the training inputs show against the others.
    """

    frame: Frame
    layers: Int[Tensor, "kept"]
    kinds: Int[Tensor, "layers kinds"]
    boxes: Int[Tensor, "layers boxes"]
    counts: Int[Tensor, "layers kinds"]
    fresh: Fresh

    @classmethod
    def learn(cls, training: Projections, cut: Cut) -> Map:
        """Cut and count training data."""
        frame = Frame.learn(training, cut)
        kept = ((frame.std > 0).any(1) & (training.valid.sum(1) >= 2)).nonzero()[:, 0]
        frame, training = frame.only(kept), _only(training, kept)
        box_keys, kind_keys = frame.keys(training)
        boxes, box_columns = _group(box_keys)
        kinds, columns = _group(kind_keys)
        suite = Suite(columns, training.valid, training.folds, kinds.shape[1], kinds.new_zeros(len(kinds), 0).bool())
        counts = suite.counts()
        box_of = torch.zeros_like(kinds).scatter_(1, columns, box_columns)
        return cls(frame, kept, kinds, boxes, counts, _fresh(suite.counts_by_fold(), counts, box_of, boxes.shape[1]))

    def place(self, suite: Projections) -> Suite:
        """Find each input's kind."""
        suite = _only(suite, self.layers)
        box_keys, kind_keys = self.frame.keys(suite)
        columns, known = _find(self.kinds, kind_keys)
        on_map = _find(self.boxes, box_keys)[1]
        fresh = suite.valid & ~known
        extra_keys, extra = _group(kind_keys.masked_fill(~fresh, _NONE))
        own = self.kinds.shape[1]
        columns = torch.where(fresh, own + extra, columns)
        on = torch.zeros_like(extra_keys, dtype=torch.int32).scatter_(1, extra, (on_map & fresh).int())
        # Inputs that are not fresh all lie in the padding, which may tell them nothing.
        on = on.bool() & (extra_keys != _NONE)
        return Suite(columns, suite.valid, suite.folds, own + extra_keys.shape[1], on)


@dataclass(frozen=True, eq=False)
class Levels:
    """Hold how many kinds of each layer so many training inputs showed.

    Kinds of one count are equally likely and weigh the same: sums over kinds are sums over a few hundred counts.

    Args:
        counts: those that occur, above 0.
        kinds: of each layer and count.
    """

    counts: Float[Tensor, "levels"]
    kinds: Float[Tensor, "layers levels"]

    @classmethod
    def of(cls, counts: Int[Tensor, "layers kinds"]) -> Levels:
        """Count kinds by their counts, without the padding."""
        levels, place = torch.unique(counts, return_inverse=True)
        kinds = torch.zeros(len(counts), len(levels), dtype=torch.float64, device=counts.device)
        kinds.scatter_add_(1, place, torch.ones_like(place, dtype=torch.float64))
        return cls(levels[levels > 0].double(), kinds[:, levels > 0])

    def expected_share(
        self, exponent: float, inputs: Float[Tensor, "*suites layers"]
    ) -> Float[Tensor, "*suites layers"]:
        """Return E of the definition: the share of the weight that so many fresh training inputs should show."""
        once, twice = (self.kinds[:, self.counts == times].sum(1) for times in (1, 2))
        total = self.kinds @ self.counts
        discount = torch.where(once + 2 * twice > 0, once / (once + 2 * twice).clamp(min=1), 0.0)
        known = 1 - once / total.clamp(min=1)
        rest = self.counts - discount[:, None]
        mass = (self.kinds * rest).sum(1)
        chance = torch.where(mass[:, None] > 0, known[:, None] * rest / mass.clamp(min=1e-300)[:, None], 0.0)
        shown = -torch.expm1(inputs[..., None] * torch.log1p(-chance.clamp(max=1 - 1e-16)))
        weights = self.kinds * self.counts**-exponent
        return (weights * shown).sum(-1) / weights.sum(1).clamp(min=1e-300)


def kind_weights(counts: Tensor, exponent: float) -> Tensor:
    """Return what kinds of training data weigh; 0 for those that none showed."""
    return torch.where(counts > 0, counts.clamp(min=1).double() ** -exponent, 0.0)


def _fresh(by_fold: Tensor, counts: Tensor, box_of: Tensor, boxes: int) -> Fresh:
    """Take each fold as a suite against the others."""
    found: list[Tensor] = []
    for own in by_fold:
        inputs = own.sum(1).double()
        rest = counts - own
        rest_boxes = torch.zeros(len(rest), boxes, dtype=rest.dtype, device=rest.device).scatter_add_(1, box_of, rest)
        on_map = rest_boxes.gather(1, box_of) > 0
        weights = kind_weights(rest, 0.5)
        total, expected = weights.sum(1), Levels.of(rest).expected_share(0.5, inputs)
        known = (weights * (own > 0)).sum(1) / total
        new = on_map & (rest == 0) & (own > 0)
        shown = known + new.sum(1) / total
        singles, pairs = (((own == times) & new).sum(1).double() for times in (1, 2))
        off_map = (own * ~on_map).sum(1) / inputs
        figures = torch.stack(
            [shown / expected, known / expected, off_map, new.sum(1).double(), singles, pairs, inputs]
        )
        found.append(torch.where((inputs > 0) & (expected > 0), figures, torch.nan))
    bias, known, off_map, *rest_of_it = torch.stack(found).nanmean(0).unbind(0)
    # Fewer training inputs say too little about how a fold of them does.
    few = (counts.sum(1) < LEAST_FOR_FOLDS) | bias.isnan()
    return Fresh(
        torch.where(few, 1.0, bias),
        off_map.nan_to_num(0.0),
        torch.where(few, 1.0, known),
        *(part.masked_fill(few, 0.0) for part in rest_of_it),
    )


def _group(keys: Int[Tensor, "layers n"]) -> tuple[Int[Tensor, "layers groups"], Int[Tensor, "layers n"]]:
    """Return the different keys of each row, in order and padded, and the column of each entry's."""
    ordered, order = keys.sort(dim=1)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = first.cumsum(1) - 1
    table = torch.full((len(keys), int(place[:, -1].max()) + 1), _NONE, dtype=torch.int64, device=keys.device)
    table.scatter_(1, place, ordered)
    return table, torch.zeros_like(place).scatter_(1, order, place)


def _find(table: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the column of each key, and whether it is there."""
    columns = torch.searchsorted(table, keys.contiguous()).clamp(max=table.shape[1] - 1)
    return columns, (table.gather(1, columns) == keys) & (keys != _NONE)


def _count(columns: Tensor, valid: Tensor, width: int) -> Tensor:
    counts = torch.zeros(len(columns), width, dtype=torch.int32, device=columns.device)
    return counts.scatter_add_(1, columns, valid.int())


def _count_by_fold(columns: Tensor, valid: Tensor, folds: Tensor, width: int) -> Tensor:
    together = _count(columns + width * folds[None], valid, FOLDS * width)
    return together.reshape(len(columns), FOLDS, width).transpose(0, 1)


def _only(suite: Projections, layers: Tensor) -> Projections:
    if len(layers) == len(suite.widths):
        return suite
    names = list(suite.widths)
    return replace(
        suite,
        widths={names[layer]: suite.widths[names[layer]] for layer in layers.tolist()},
        places={directions: places[layers] for directions, places in suite.places.items()},
        valid=suite.valid[layers],
    )
