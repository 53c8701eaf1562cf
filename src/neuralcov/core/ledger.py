"""Several criteria and their states kept together: what every batch, snapshot and merge goes through."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import NOT_FINITE, SPLIT_FREE, TAKEN, UNPLACED, Criterion, State
from neuralcov.core.errors import HyperParameterError, InputError, MismatchError
from neuralcov.core.layout import Layout
from neuralcov.core.records import map_tensors, move

AnyCriterion = Criterion[Any]
States = tuple[State, ...]


@dataclass(frozen=True)
class LayerRow:
    """One layer of a coverage: its values by criterion, ``None`` where a criterion has none for it."""

    layer: str
    neurons: int
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Finding:
    """Something about a measurement that a person should know."""

    criterion: str
    sentence: str
    inputs: int | None = None

    def __str__(self) -> str:
        return f"{self.criterion}: {self.sentence}"


class Ledger:
    """Criteria, the layers they watch, and one state each."""

    def __init__(self, criteria: Sequence[AnyCriterion]) -> None:
        if criteria is None or isinstance(criteria, (Criterion, str)):
            raise HyperParameterError(f"criteria {criteria!r}: expected a list, for example [nc.NLC(), nc.NC(0.75)]")
        for criterion in criteria:
            if not isinstance(criterion, Criterion):
                raise HyperParameterError(f"{criterion!r} is not a criterion: expected for example nc.NLC()")
        names = [criterion.name for criterion in criteria]
        for name in names:
            if names.count(name) > 1:
                raise HyperParameterError(f"the criterion {name} is given {names.count(name)} times: give it once")
        if not names:
            raise HyperParameterError("no criteria: give at least one, for example nc.NLC()")
        self.criteria: tuple[AnyCriterion, ...] = tuple(criteria)
        self.names = tuple(names)
        self.layout: Layout | None = None
        self.definitions = self._present
        """The definition under which each state was measured; a loaded one may be older than its criterion's."""
        self.version = 0
        self._states: States | None = None
        self.held = False
        self._borrowed = False
        self._broken = False

    @property
    def needs(self) -> frozenset[str]:
        """What batches must carry besides activations."""
        return frozenset().union(*(criterion.needs for criterion in self.criteria))

    @property
    def learns(self) -> frozenset[str]:
        """What calibration must fill."""
        return frozenset().union(*(criterion.learns for criterion in self.criteria))

    @property
    def _present(self) -> tuple[int, ...]:
        return tuple(criterion.definition for criterion in self.criteria)

    @property
    def empty(self) -> bool:
        """Whether nothing has been observed."""
        return self._states is None

    @property
    def states(self) -> States:
        """One state per criterion. Whoever keeps them must call :meth:`hold`."""
        if self._broken:
            raise InputError(
                "an update was interrupted while it overwrote the state, which is worth nothing now: "
                "restore a snapshot, load a file, or reset() and measure again"
            )
        if self._states is not None:
            return self._states
        assert self.layout is not None, "states exist once the layers are known"
        return tuple(criterion.init(self.layout) for criterion in self.criteria)

    @property
    def inputs(self) -> int:
        """How many inputs were observed, those left out included."""
        return 0 if self._states is None else int(self._states[0].counts.sum())

    def hold(self) -> None:
        """Somebody keeps the present states: they must not be overwritten."""
        self._own()
        self.held = True

    def _own(self) -> None:
        """Copy states that somebody lent: what comes of them may share tensors with them, and must outlast them."""
        if self._borrowed:
            self._states, self._borrowed = map_tensors(torch.clone, self._states), False

    def replace(self, states: States | None, *, held: bool, borrowed: bool = False) -> None:
        """Go on from other states, which whoever lent them will overwrite if they are ``borrowed``."""
        self._states, self.held, self._borrowed = states, held, borrowed
        if states is None:
            self.definitions = self._present
        self._broken = False
        self.version += 1

    def check(self, batch: Activations) -> None:
        """Refuse a batch that lacks what a criterion needs, and states of an older definition, which cannot go on."""
        for criterion, definition in zip(self.criteria, self.definitions, strict=True):
            if definition < criterion.definition:
                raise InputError(f"{criterion.name}: measured under definition {definition}: measure again")
            if criterion.learns:
                criterion.require_fitted()
            for need in sorted(criterion.needs):
                if getattr(batch, need) is None:
                    raise InputError(f"{criterion.name} needs {need}: pass them with the batch")

    def observe(self, batch: Activations) -> None:
        """Take a batch in."""
        self.check(batch)
        self._own()
        states = self.states
        donate = not self.held
        # Until all criteria are through, some states are overwritten and others not.
        self._broken = donate and not self.empty
        self.replace(
            tuple(c.observe(s, batch, donate=donate) for c, s in zip(self.criteria, states, strict=True)), held=False
        )

    def observe_one_by_one(self, batch: Activations) -> None:
        """Take the inputs of a batch in one after the other, as far as that differs from all at once."""
        self.check(batch)
        self._own()
        states = self.states
        observed = []
        for criterion, state in zip(self.criteria, states, strict=True):
            if SPLIT_FREE in criterion.promises:
                state = criterion.observe(state, batch, donate=not self.held)
            else:
                for index in range(batch.size):
                    donate = index > 0 or not self.held
                    state = criterion.observe(state, batch.take(slice(index, index + 1)), donate=donate)
            observed.append(state)
        self.replace(tuple(observed), held=self.held and batch.size == 0)

    def admit(self, batch: Activations, *, min_gain: float = 0.0) -> Tensor:
        """Take inputs in order, each only if some criterion gains more than ``min_gain`` on what it meets."""
        self.check(batch)
        self._own()
        if len(self.criteria) == 1:
            taken, state = self.criteria[0].admit(self.states[0], batch, min_gain=min_gain)
            self.replace((state,), held=False)
            return taken
        taken = torch.zeros(batch.size, dtype=torch.bool, device=batch.device)
        for index in range(batch.size):
            alone = batch.take(slice(index, index + 1))
            # One that gains is enough: the criteria after it need not be asked.
            judged = zip(self.criteria, self.states, strict=True)
            if any(float(criterion.gain(state, alone)) > min_gain for criterion, state in judged):
                self.observe(alone)
                taken[index] = True
        return taken

    def gain(self, batch: Activations) -> dict[str, Tensor]:
        """How far each input alone would move each criterion."""
        self.check(batch)
        return {c.name: c.gain(s, batch) for c, s in zip(self.criteria, self.states, strict=True)}

    def values(self) -> dict[str, float]:
        """The value of each criterion; waits for the device once."""
        if self.layout is None:
            for criterion in self.criteria:
                if criterion.learns:
                    criterion.require_fitted()
            return dict.fromkeys(self.names, 0.0)
        numbers = torch.stack([c.value(s) for c, s in zip(self.criteria, self.states, strict=True)]).tolist()
        for number, criterion, state in zip(numbers, self.criteria, self.states, strict=True):
            if math.isnan(number):
                raise InputError(
                    f"{criterion.name} has no value: {criterion.undefined(state)}; restore a snapshot or measure again"
                )
        return dict(zip(self.names, numbers, strict=True))

    def beside(self) -> dict[str, dict[str, float]]:
        """Figures that stand beside the values, for criteria that have some."""
        if self.layout is None:
            return {}
        found = {c.name: dict(c.beside(s)) for c, s in zip(self.criteria, self.states, strict=True)}
        return {name: figures for name, figures in found.items() if figures}

    def by_layer(self) -> tuple[LayerRow, ...]:
        """Every layer with its value under every criterion."""
        if self.layout is None:
            return ()
        columns = {c.name: c.by_layer(s) for c, s in zip(self.criteria, self.states, strict=True)}
        numbers = {name: None if column is None else column.tolist() for name, column in columns.items()}
        return tuple(
            LayerRow(layer, shape.neurons, {name: _number(column, i) for name, column in numbers.items()})
            for i, (layer, shape) in enumerate(self.layout.items())
        )

    def findings(self) -> tuple[Finding, ...]:
        """What was left out and what to bear in mind; an error if a criterion could place no input at all."""
        if self.empty:
            return ()
        found = []
        for criterion, state in zip(self.criteria, self.states, strict=True):
            counts = state.counts.tolist()
            if counts[UNPLACED] and not counts[TAKEN]:
                raise InputError(
                    f"{criterion.name} could place none of {counts[UNPLACED]} inputs: {criterion.unplaced}"
                )
            if counts[NOT_FINITE]:
                said = f"{counts[NOT_FINITE]} inputs with NaN or infinite outputs were left out"
                found.append(Finding(criterion.name, said, counts[NOT_FINITE]))
            if counts[UNPLACED]:
                said = f"{counts[UNPLACED]} inputs were left out: {criterion.unplaced}"
                found.append(Finding(criterion.name, said, counts[UNPLACED]))
            found.extend(Finding(criterion.name, remark) for remark in criterion.remarks(state))
        return tuple(found)

    def merge(self, other: Ledger) -> None:
        """Take in what another ledger has seen."""
        if self.names != other.names:
            raise MismatchError(
                f"criteria differ: this coverage has {', '.join(self.names)}, the other {', '.join(other.names)}"
            )
        if other.layout is None or other.empty:
            return
        for name, ours, another in zip(self.names, self.definitions, other.definitions, strict=True):
            if ours != another and not self.empty:
                raise MismatchError(
                    f"{name}: this coverage was measured under definition {ours}, the other under {another}: "
                    "measure one of them again"
                )
        self.layout = self.layout or other.layout
        self.layout.require_same(other.layout, "the other coverage")
        # A merged state may share parts with either side, for example a class only one of them has seen.
        self._own()
        other.hold()
        theirs = move(other.states, self.layout.device)
        if self.empty:
            self.replace(theirs, held=True)
            self.definitions = other.definitions
            return
        merged = tuple(c.merge(a, b) for c, a, b in zip(self.criteria, self.states, theirs, strict=True))
        self.replace(merged, held=True)


def _number(column: list[float] | None, index: int) -> float | None:
    if column is None or math.isnan(column[index]):
        return None
    return column[index]
