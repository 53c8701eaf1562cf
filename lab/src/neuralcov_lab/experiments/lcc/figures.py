"""Work out LCC's value and the figures beside it for any variant, from counts of kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.abundance import error_by_unequal_folds
from neuralcov.core.shapes import Float
from neuralcov_lab.experiments.lcc.maps import Levels, Map, Suite, kind_weights


@dataclass(frozen=True)
class Weighting:
    """Say what kinds weigh.

    Args:
        exponent: a kind of c training inputs weighs c^−exponent.
        new_decision: what a kind weighs that training data show with other decisions only.
        novel: what a kind weighs whose box training data do not show.
    """

    exponent: float = 0.5
    new_decision: float = 1.0
    novel: float = 0.0


DEFAULT = Weighting()


@dataclass(frozen=True)
class Figures:
    """Hold what LCC says of a suite, as the median over layers.

    ``relative_in_parts`` is no figure of the definition: it expects known kinds and new decisions apart.
    """

    value: float
    relative: float
    relative_in_parts: float
    off_map: float
    expected_off_map: float
    new_decisions: float
    next: float


@dataclass(frozen=True)
class Errors:
    """Hold the standard errors of the delete-a-fold jackknife."""

    value: float
    relative: float


class Measure:
    """Measure suites of inputs that were placed on a map, under several weightings.

    Args:
        ground: the map.
        suite: inputs placed on it.
        weightings: the ones ``values`` gives layers for.
    """

    def __init__(self, ground: Map, suite: Suite, weightings: Sequence[Weighting] = (DEFAULT,)) -> None:
        self.ground, self.suite, self.weightings = ground, suite, tuple(weightings)
        self._weights = [_weights(ground, suite, weighting) for weighting in self.weightings]
        self._totals = [kind_weights(ground.counts, weighting.exponent).sum(1) for weighting in self.weightings]
        self._levels = Levels.of(ground.counts)

    def layers(self, rows: Tensor | None = None) -> Float[Tensor, "weightings layers"]:
        """Return every layer's value under every weighting, on the CPU."""
        shown = self.suite.counts(rows) > 0
        return torch.stack([self._layers(shown, place) for place in range(len(self.weightings))]).cpu()

    def figures(self, rows: Tensor | None = None, over: Callable[[Tensor], float] | None = None) -> Figures:
        """Return the figures under the first weighting, which must be the default's exponent for ``relative``."""
        over = over or median
        counts = self.suite.counts(rows)
        shown, inputs = counts > 0, counts.sum(1).double()
        own = self.ground.counts.shape[1]
        extra = counts[:, own:]
        value = self._layers(shown, 0)
        expected = self._levels.expected_share(0.5, inputs)
        relative = value / (self.ground.fresh.bias * expected)
        new = self.ground.fresh.new_decisions(inputs) / self._totals[0]
        in_parts = value / (self.ground.fresh.known * expected + new)
        every = inputs.clamp(min=1)
        off_map = (extra * ~self.suite.on_map).sum(1) / every
        decisions = ((extra > 0) & self.suite.on_map).sum(1).double() / shown.sum(1).clamp(min=1)
        singles = (counts == 1).sum(1) / every
        present = inputs > 0
        return Figures(
            over(value.cpu()),
            over(relative[present].cpu()),
            over(in_parts[present].cpu()),
            over(off_map[present].cpu()),
            over(self.ground.fresh.off_map.cpu()),
            over(decisions[present].cpu()),
            over(singles[present].cpu()),
        )

    def errors(self, rows: Tensor | None = None, over: Callable[[Tensor], float] | None = None) -> Errors:
        """Return the standard errors of value and ``relative``: what leaving out one fold after the other changes."""
        over = over or median
        rows = torch.arange(len(self.suite), device=self.suite.folds.device) if rows is None else rows
        columns, by_fold = self.suite.shown_by_fold(rows)
        sizes = by_fold.sum((1, 2))
        used = sizes > 0
        if int(used.sum()) < 2:
            return Errors(float("nan"), float("nan"))
        # All inputs first, then those without each fold.
        rest = by_fold.sum(0) - torch.cat([torch.zeros_like(by_fold[:1]), by_fold[used]])
        weights = self._weights[0].gather(1, columns)
        layers = (weights * (rest > 0)).sum(2) / self._totals[0].clamp(min=1e-300)
        inputs = rest.sum(2).double()
        relative = layers / (self.ground.fresh.bias * self._levels.expected_share(0.5, inputs))
        found = [
            [over(own) for own in layers.cpu()],
            [over(own[there]) for own, there in zip(relative.cpu(), (inputs > 0).cpu(), strict=True)],
        ]
        return Errors(
            *(
                error_by_unequal_folds(own[0], own[1:], sizes[used].cpu())
                for own in torch.tensor(found, dtype=torch.float64)
            )
        )

    def fresh(self, before: Tensor, after: Tensor) -> Float[Tensor, "layers"]:
        """Return the share of some inputs whose kind none of others shows, by layer."""
        known = self.suite.counts(before) > 0
        later = self.suite.counts(after)
        return ((later * ~known).sum(1).double() / later.sum(1).clamp(min=1)).cpu()

    def _layers(self, shown: Tensor, place: int) -> Tensor:
        return (self._weights[place] * shown).sum(1) / self._totals[place].clamp(min=1e-300)


def median(values: Tensor) -> float:
    """Return the median; of an even number the mean of the middle two.

    >>> median(torch.tensor([3.0, 1.0, 2.0, 10.0]))
    2.5
    """
    return trimmed(values, max(0, (len(values) - 1) // 2))


def mean(values: Tensor) -> float:
    """Return the mean."""
    return trimmed(values, 0)


def trimmed_mean(values: Tensor) -> float:
    """Return the mean without the quarter of smallest and the quarter of largest values."""
    return trimmed(values, len(values) // 4)


def trimmed(values: Tensor, ends: int) -> float:
    """Return the mean without so many values at either end; NaN of none."""
    ordered = values.double().sort().values
    return float(ordered[ends : len(ordered) - ends].mean())


OVER: dict[str, Callable[[Tensor], float]] = {"median": median, "mean": mean, "trimmed": trimmed_mean}


def _weights(ground: Map, suite: Suite, weighting: Weighting) -> Tensor:
    known = kind_weights(ground.counts, weighting.exponent)
    fresh = torch.where(suite.on_map, weighting.new_decision, weighting.novel).double()
    return torch.cat([known, fresh], dim=1)
