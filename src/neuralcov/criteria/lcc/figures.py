"""What stands beside LCC's value: figures per layer, worked out from the kinds a suite has shown and their counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.abundance import Estimate, error_by_unequal_folds, kinds_to_come, rarefied
from neuralcov.core.counts import VALID
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.bottom_kinds import sample
from neuralcov.criteria.distinct import DistinctState
from neuralcov.criteria.kind_set import FOLD_COUNT, KindSet
from neuralcov.criteria.lcc.training import NEW_DECISION, OFF_THE_MAP, TrainingKinds

PerLayer = Float[Tensor, "layers"]


def over_layers(values: Float[Tensor, "*rows layers"], over: str) -> Float[Tensor, "*rows"]:
    """Bring the values of layers together: their median, mean, or mean without the lowest and highest quarter."""
    count = values.shape[-1]
    if not count:
        return values.sum(-1)
    if over == "mean":
        return values.mean(-1)
    ordered = values.sort(-1).values
    cut = (count - 1) // 2 if over == "median" else count // 4
    return ordered[..., cut : count - cut].mean(-1)


def numbers_of(seen: KindSet, training: TrainingKinds, layers: int) -> Int[Tensor, "layers levels_and_one"]:
    """Count the kinds of a suite by layer and by how many training inputs showed them; behind them new decisions."""
    return _numbers(seen, training, (layers,))


def _numbers(
    seen: KindSet, training: TrainingKinds, shape: tuple[int, ...], first: Int[Tensor, "kinds"] | None = None
) -> Tensor:
    """Count kinds by layer and level; with ``first``, which says to which of so many parts a kind belongs, by that."""
    assert seen.marks is not None
    levels = len(training.levels)
    level = _level_of(seen.marks, training)
    column = torch.zeros_like(level) if seen.columns is None else seen.columns.long()
    place = column if first is None else first * shape[-1] + column
    counted = ((seen.marks != OFF_THE_MAP) & seen.present()).long()
    numbers = torch.zeros((*shape, levels + 1), dtype=torch.int64, device=level.device)
    numbers.view(-1).index_add_(0, place * (levels + 1) + level, counted)
    return numbers


def _level_of(marks: Int[Tensor, "kinds"], training: TrainingKinds) -> Int[Tensor, "kinds"]:
    """Return the place of each kind's count among the levels, behind them for new decisions; any for the others."""
    return torch.where(marks == NEW_DECISION, len(training.levels), torch.searchsorted(training.levels, marks.long()))


@dataclass(frozen=True, eq=False)
class SuiteKinds:
    """The kinds of a suite beside those of training data, for the layers that count.

    Of a sketch, which keeps so many kinds, those that are a sample of all stand for the others.
    """

    state: DistinctState
    training: TrainingKinds
    over: str
    kept: int | None = None

    @cached_property
    def seen(self) -> KindSet:
        """Return the kinds, without room behind them."""
        whole = self.state.seen.compact()
        if self.kept is None:
            return whole
        inside, _ = sample(whole, self.kept, self.state.columns)
        return whole.each(lambda part: part[inside])

    @cached_property
    def share(self) -> PerLayer | float:
        """Return which share of all kinds these are."""
        return 1.0 if self.kept is None else sample(self.state.seen.compact(), self.kept, self.state.columns)[1]

    @cached_property
    def columns(self) -> Int[Tensor, "kinds"]:
        """Return the layer of each kind."""
        seen = self.seen
        return torch.zeros_like(seen.counts) if seen.columns is None else seen.columns.long()

    def together(self, values: Float[Tensor, "layers"]) -> float:
        """Bring the values of the layers that have one together; NaN if none has."""
        own = values[self.training.layers]
        return float(over_layers(own[~own.isnan()], self.over)) if bool((~own.isnan()).any()) else torch.nan

    def by_column(self, weights: Tensor) -> PerLayer:
        """Sum something of each kind by layer."""
        total = torch.zeros(self.state.columns, dtype=torch.float64, device=weights.device)
        return total.index_add_(0, self.columns, weights.double()) / self.share

    @cached_property
    def inputs(self) -> PerLayer:
        """Return how many inputs showed a kind in each layer."""
        if self.kept is not None and self.state.by_fold is not None:
            return self.state.by_fold.sum(1).double()  # exact, whatever kinds are kept
        return self.by_column(self.seen.counts)

    @cached_property
    def values(self) -> PerLayer:
        """Return the value of each layer; NaN for layers that do not count."""
        return self._values(numbers_of(self.seen, self.training, self.state.columns))

    def _values(self, numbers: Tensor) -> Tensor:
        # Nothing of nothing is NaN: layers that do not count have no kinds.
        return self.training.weigh(numbers) / self.share / self.training.total

    def _relative(self, values: Tensor, inputs: Tensor) -> Tensor:
        expected = self.training.expected(inputs)
        return torch.where(expected > 0, values / expected, torch.nan)

    @cached_property
    def relative(self) -> PerLayer:
        """Return the value as a multiple of what as many fresh training inputs would have."""
        return self._relative(self.values, self.inputs)

    @cached_property
    def off_map(self) -> PerLayer:
        """Return the share of inputs whose box no training input showed."""
        return self.by_column(torch.where(self._marks == OFF_THE_MAP, self.seen.counts, 0)) / self.inputs

    @cached_property
    def new_decisions(self) -> PerLayer:
        """Return the share of kinds that are new decisions in known boxes."""
        return self.by_column(self._marks == NEW_DECISION) / self.by_column(torch.ones_like(self._marks))

    @cached_property
    def next(self) -> PerLayer:
        """Return the chance that the next input shows a new kind, f₁/n."""
        return self.by_column(self.seen.counts == 1) / self.inputs

    @cached_property
    def to_come(self) -> tuple[PerLayer, PerLayer]:
        """Return how many kinds are still to come, and the standard error of that."""
        once, twice = (self.by_column(self.seen.counts == times).tolist() for times in (1, 2))
        found = [kinds_to_come(one, two) for one, two in zip(once, twice, strict=True)]
        none = self.inputs == 0
        values, errors = (
            torch.tensor(part, dtype=torch.float64, device=none.device).masked_fill(none, torch.nan)
            for part in ([each.value for each in found], [each.error for each in found])
        )
        return values, errors

    def errors(self) -> tuple[float, float]:
        """Return the standard errors of the value and of ``relative``, by leaving out each fold in turn; NaN for none.

        Leaving out a fold takes away the kinds that only it has shown, and its inputs: more of both for a larger fold.
        """
        by_fold, bits = self.state.by_fold, self.seen.folds
        if by_fold is None or bits is None:
            return torch.nan, torch.nan
        powers = 1 << torch.arange(FOLD_COUNT, device=bits.device)
        alone = bits.long()[:, None] == powers
        # The part behind the folds takes the kinds that several have shown.
        only = torch.where(alone.any(1), alone.long().argmax(1), FOLD_COUNT)
        numbers = _numbers(self.seen, self.training, (FOLD_COUNT + 1, self.state.columns), only)
        left = (numbers.sum(0) - numbers)[:FOLD_COUNT]
        used = by_fold.sum(0) > 0
        if int(used.sum()) < 2:
            return torch.nan, torch.nan
        values = self._values(left)[used]
        relative = self._relative(values, (by_fold.sum(1) - by_fold.T).double()[used])
        sizes = by_fold.sum(0)[used]
        return self._spread(self.values, values, sizes), self._spread(self.relative, relative, sizes)

    def _spread(self, whole: PerLayer, left_out: Float[Tensor, "folds layers"], sizes: Int[Tensor, "folds"]) -> float:
        """Return the standard error of a figure that values without each fold give."""
        together = [self.together(row) for row in (whole, *left_out)]
        all_of_it, *rest = torch.tensor(together, dtype=torch.float64)
        return error_by_unequal_folds(all_of_it, torch.stack(rest), sizes.cpu())

    def details(self) -> Mapping[str, float]:
        """Return all figures, brought together over the layers; those that have no value are left out."""
        to_come, to_come_error = self.to_come
        error, relative_error = self.errors()
        figures = {
            "relative": self.together(self.relative),
            "relative_error": relative_error,
            "error": error,
            "off_map": self.together(self.off_map),
            "off_map_expected": self.together(self.training.off_map),
            **self._worst(),
            "new_decisions": self.together(self.new_decisions) if self.training.decisions else torch.nan,
            "next": self.together(self.next),
            "to_come": self.together(to_come),
            "to_come_error": self.together(to_come_error),
        }
        return {name: figure for name, figure in figures.items() if figure == figure}

    def by_layer(self) -> Mapping[str, PerLayer]:
        """Return the figures that a single layer has; NaN for layers that do not count."""
        return {"relative": self.relative, "off_map": self.off_map, "next": self.next}

    def _worst(self) -> dict[str, float]:
        """Return the share off the map in the layer where it is farthest above what is expected, and that."""
        layers = self.training.layers
        share, expected = self.off_map[layers], self.training.off_map[layers]
        above = (share - expected.nan_to_num(0)).nan_to_num(-1)
        if not len(above):
            return {}
        index = above.argmax()
        return {"off_map_worst": float(share[index]), "off_map_worst_expected": float(expected[index])}

    def rarefied(self, inputs: int) -> Estimate:
        """Return the value of so many of the inputs drawn at random, and how far draws differ."""
        weights = self.training.weights[_level_of(self._marks, self.training)].masked_fill(
            self._marks == OFF_THE_MAP, 0
        )
        found = []
        for layer in self.training.layers.tolist():
            mine = self.columns == layer
            counts = self.seen.counts[mine]
            share = rarefied(counts, weights[mine], min(inputs, int(counts.sum())))
            total = float(self.training.total[layer])
            found.append((share.value / total, share.error / total))
        value, error = (over_layers(part, self.over) for part in torch.tensor(found, dtype=torch.float64).view(-1, 2).T)
        return Estimate(float(value), float(error))

    def forecast(self, inputs: int) -> float | None:
        """Return the value that so many inputs would have whose ``relative`` is that of these; ``None`` without one."""
        grown = self.inputs * (inputs / int(self.state.counts[VALID]))
        value = self.together(self.relative * self.training.expected(grown))
        return None if value != value else value

    @property
    def _marks(self) -> Int[Tensor, "kinds"]:
        assert self.seen.marks is not None
        return self.seen.marks
