"""What can be read off criteria and their states: values, figures, layers, findings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from neuralcov.core.abundance import Estimate
from neuralcov.core.counted import agreeing, counted
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID
from neuralcov.core.criterion import Criterion, State
from neuralcov.core.errors import InputError
from neuralcov.core.findings import Finding, LayerRow
from neuralcov.core.guards import Turn, in_turn
from neuralcov.core.layout import Layout
from neuralcov.coverage.seen import SeenInputs


def require_fewer(inputs: object, observed: int) -> None:
    """Refuse a size that is none of a part of the inputs observed."""
    if not isinstance(inputs, int) or not 1 <= inputs <= observed:
        raise InputError(f"rarefied({inputs!r}): expected a whole number from 1 to {observed}, the inputs observed")


def require_more(inputs: object, observed: int) -> None:
    """Refuse a size below that of the inputs observed."""
    if not isinstance(inputs, int) or inputs < max(1, observed):
        raise InputError(
            f"forecast({inputs!r}): expected a whole number from {max(1, observed)} on, the inputs observed; "
            "for fewer ask rarefied()"
        )


class CollectionReadings:
    """Read criteria that are kept together. ``CriterionCollection`` keeps them."""

    criteria: tuple[Criterion[Any], ...]
    names: tuple[str, ...]
    layout: Layout | None
    turn: Turn
    seen: SeenInputs | None

    @property
    def empty(self) -> bool:
        """Return whether nothing has been observed."""
        raise NotImplementedError

    @property
    def states(self) -> tuple[State, ...]:
        """Return one state per criterion, to be read at once."""
        raise NotImplementedError

    @in_turn
    def values(self) -> dict[str, float]:
        """Return the value of each criterion; wait for the device once."""
        if self.layout is None:
            for criterion in self.criteria:
                if criterion.learns:
                    criterion.require_learnt()
            return dict.fromkeys(self.names, 0.0)
        both = zip(self.criteria, self.states, strict=True)
        rows = torch.stack([torch.cat([c.value(s)[None], s.counts.double()]) for c, s in both]).tolist()
        numbers = [row[0] for row in rows]
        for number, criterion, state in zip(numbers, self.criteria, self.states, strict=True):
            if math.isnan(number):
                raise InputError(
                    f"{criterion.name} has no value: {criterion.undefined(state)}; restore a snapshot or measure again"
                )
        placeless = _placeless([row[1:] for row in rows])
        return {
            name: math.nan if index in placeless else number
            for index, (name, number) in enumerate(zip(self.names, numbers, strict=True))
        }

    @in_turn
    def details(self, *, alone: bool = True) -> dict[str, dict[str, float]]:
        """Return figures that belong beside the values, for criteria that have some.

        Leave out those that mean nothing for a suite that is not ``alone`` but was added to other inputs.
        """
        if self.layout is None:
            return {}
        found = {c.name: dict(c.details(s)) for c, s in zip(self.criteria, self.states, strict=True)}
        if not alone:
            found = {c.name: {k: v for k, v in found[c.name].items() if k not in c.of_one_suite} for c in self.criteria}
        return {name: figures for name, figures in found.items() if figures}

    @in_turn
    def rarefied(self, inputs: int) -> dict[str, Estimate]:
        """Return the values of so many of the inputs drawn at random, for criteria that can tell."""
        if self.layout is None:
            return {}
        found = {c.name: c.rarefied(s, inputs) for c, s in zip(self.criteria, self.states, strict=True)}
        return {name: value for name, value in found.items() if value is not None}

    @in_turn
    def forecast(self, inputs: int) -> dict[str, float]:
        """Return the values to expect of so many inputs of the same sort, for criteria that can tell."""
        if self.layout is None:
            return {}
        found = {c.name: c.forecast(s, inputs) for c, s in zip(self.criteria, self.states, strict=True)}
        return {name: value for name, value in found.items() if value is not None}

    @in_turn
    def forecast_errors(self, inputs: int) -> dict[str, float]:
        """Return the standard errors of what `forecast` says, for criteria that can tell."""
        if self.layout is None:
            return {}
        found = {c.name: c.forecast_error(s, inputs) for c, s in zip(self.criteria, self.states, strict=True)}
        return {name: error for name, error in found.items() if error is not None}

    @in_turn
    def by_layer(self, *, alone: bool = True) -> tuple[LayerRow, ...]:
        """Return every layer with its value under every criterion, and figures as ``details`` leaves them."""
        if self.layout is None:
            return ()
        both = list(zip(self.criteria, self.states, strict=True))
        columns = {c.name: c.by_layer(s) for c, s in both}
        numbers = {name: None if column is None else column.tolist() for name, column in columns.items()}
        figures = {
            f"{c.name}.{name}": column.tolist()
            for c, s in both
            for name, column in c.details_by_layer(s).items()
            if alone or name not in c.of_one_suite
        }
        return tuple(
            LayerRow(
                layer,
                shape.neurons,
                {name: _number(column, i) for name, column in numbers.items()},
                {name: _number(column, i) for name, column in figures.items()},
            )
            for i, (layer, shape) in enumerate(self.layout.items())
        )

    @in_turn
    def uncovered(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Return the neurons of which nothing is covered, by criterion and layer."""
        if self.layout is None:
            return {}
        masks = {c.name: c.uncovered(s) for c, s in zip(self.criteria, self.states, strict=True)}
        return {
            name: {
                layer: tuple(bare.nonzero()[:, 0].tolist())
                for layer, bare in zip(self.layout, some, strict=True)
                if bool(bare.any())
            }
            for name, some in masks.items()
            if some is not None
        }

    @in_turn
    def visited(self) -> dict[str, tuple[torch.Tensor, ...]]:
        """Return the covered share of each neuron's cells, by criterion and layer, for neurons with several cells."""
        if self.layout is None:
            return {}
        shares = {c.name: c.visited(s) for c, s in zip(self.criteria, self.states, strict=True)}
        return {name: tuple(one.cpu() for one in some) for name, some in shares.items() if some is not None}

    @in_turn
    def findings(self) -> tuple[Finding, ...]:
        """List what was left out and what to bear in mind; refuse if no criterion could place any input at all."""
        if self.empty:
            return ()
        found, every = [], [state.counts.tolist() for state in self.states]
        placeless = _placeless(every)
        for index, (criterion, state) in enumerate(zip(self.criteria, self.states, strict=True)):
            counts = every[index]
            if counts[NOT_PLACEABLE] and not counts[VALID]:
                said = f"could place none of {counted(counts[NOT_PLACEABLE], 'input')}: {criterion.exclusion_reason}"
                if index not in placeless:
                    raise InputError(f"{criterion.name} {said}")
                found.append(self._finding(criterion, f"has no value: {said}", counts, NOT_PLACEABLE))
                continue
            if counts[NOT_FINITE]:
                left = counts[NOT_FINITE]
                said = f"{counted(left, 'input')} with NaN or infinite outputs {agreeing(left, 'was', 'were')} left out"
                found.append(self._finding(criterion, said, counts, NOT_FINITE))
            if counts[NOT_PLACEABLE]:
                left = counts[NOT_PLACEABLE]
                were = agreeing(left, "was", "were")
                said = f"{counted(left, 'input')} {were} left out: {criterion.exclusion_reason}"
                found.append(self._finding(criterion, said, counts, NOT_PLACEABLE))
            found.extend(Finding(criterion.name, remark) for remark in criterion.notes(state))
        return tuple(found)

    def _finding(self, criterion: Criterion[Any], said: str, counts: Sequence[int], reason: int) -> Finding:
        """Tell of excluded inputs, by their names where these are known."""
        names = () if self.seen is None else self.seen.excluded.of(criterion.name, reason)
        return Finding(criterion.name, said, counts[reason], names)


def _placeless(counts: Sequence[Sequence[float]]) -> set[int]:
    """Return which criteria could place no input, where others could: theirs is no value of 0."""
    found = {index for index, some in enumerate(counts) if some[NOT_PLACEABLE] and not some[VALID]}
    return found if len(found) < len(counts) else set()


def _number(column: list[float] | None, index: int) -> float | None:
    if column is None or math.isnan(column[index]):
        return None
    return column[index]
