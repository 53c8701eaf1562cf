"""Several criteria and their states kept together: what every batch, snapshot and merge goes through."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.cost import GrowthLimit, require_memory
from neuralcov.core.criterion import SPLIT_FREE, Criterion, State
from neuralcov.core.errors import HyperParameterError, InputError, MismatchError
from neuralcov.core.guards import Turn, in_turn
from neuralcov.core.layout import Layout
from neuralcov.core.records import move
from neuralcov.coverage.ownership import Holding, Owned, Shared, own
from neuralcov.coverage.readings import CollectionReadings
from neuralcov.coverage.seen import SeenInputs
from neuralcov.coverage.waiting import WaitingBatches, form_of

AnyCriterion = Criterion[Any]
States = tuple[State, ...]
Holdings = tuple[Holding[Any], ...]
SharedStates = tuple[Shared[Any], ...]


class CriterionCollection(CollectionReadings):
    """Keep criteria together with the layers they watch and one state each.

    States are held as ``neuralcov.coverage.ownership`` says, so that nothing which somebody keeps is overwritten.
    Small batches may wait for others (``neuralcov.coverage.waiting``) until somebody looks.
    """

    def __init__(
        self, criteria: Sequence[AnyCriterion], seen: SeenInputs | None = None, memory: str | int | None = None
    ) -> None:
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
        self.criteria: tuple[AnyCriterion, ...] = within_memory(criteria, memory)
        self.names = tuple(names)
        self.layout: Layout | None = None
        self.turn = Turn()
        self.definitions = self.own_definitions()
        self._waiting = WaitingBatches()
        self._seen = seen
        self.version = 0
        self._holdings: Holdings | None = None
        self._fits: Layout | None = None
        self._growth: GrowthLimit | None = None

    @property
    def needs(self) -> frozenset[str]:
        """Return what batches must carry besides activations."""
        return frozenset().union(*(criterion.needs for criterion in self.criteria))

    @property
    def wants_predictions(self) -> bool:
        """Return whether a criterion uses the model's decisions where they can be read, and does without elsewhere."""
        return any("predictions" in criterion.wants for criterion in self.criteria)

    @property
    def empty(self) -> bool:
        """Return whether nothing has been observed."""
        return self._holdings is None

    @property
    def seen(self) -> SeenInputs | None:
        """Return which inputs were observed, if anybody asks."""
        self.settle()
        return self._seen

    @seen.setter
    def seen(self, seen: SeenInputs | None) -> None:
        self.settle()
        self._seen = seen

    @property
    def states(self) -> States:
        """Return one state per criterion, to be read at once. To keep them, call ``share``."""
        return tuple(holding.state for holding in self.holdings)

    @property
    def holdings(self) -> Holdings:
        """Return one state per criterion, with who may overwrite it."""
        self.settle()
        if self._holdings is not None:
            return self._holdings
        assert self.layout is not None, "states exist once the layers are known"
        self.require_memory(self.layout)
        return tuple(Owned(criterion.init(self.layout)) for criterion in self.criteria)

    def require_memory(self, layout: Layout) -> None:
        """Refuse layers that some criterion has no room for, before any is taken; look once for each layout."""
        if self._fits is not layout:
            require_memory(self.criteria, layout)
            self._fits = layout

    @property
    def inputs(self) -> int:
        """Return how many inputs were observed, those excluded included: the most that any criterion counts."""
        if self.empty:
            return 0
        return int(torch.stack([state.counts.sum() for state in self.states]).max())

    @in_turn
    def share(self) -> SharedStates | None:
        """Give the present states to somebody who keeps them; from here on nothing overwrites them."""
        self.settle()
        if self._holdings is None:
            return None
        shared = tuple(holding.share() for holding in self._holdings)
        self._holdings = shared
        return shared

    def adopt(self, states: SharedStates | None) -> None:
        """Go on from states that somebody else keeps as well, or from nothing."""
        self._growth = None
        self.advance(states)

    @in_turn
    def own(self) -> None:
        """Take the states for this collection's own: they were just read from a file, and nobody else has them."""
        if self._holdings is not None:
            states = self.states
            self._holdings = tuple(
                own(state, *(c.learnt for c in self.criteria), *(s for s in states if s is not state))
                for state in states
            )

    @in_turn
    def fork(self) -> CriterionCollection:
        """Copy this collection; neither overwrites the states that both begin with."""
        twin = CriterionCollection(self.criteria)
        twin.layout = self.layout
        twin.definitions = dict(self.definitions)
        twin.seen = None if self.seen is None else self.seen.copy()
        twin.adopt(self.share())
        return twin

    def advance(self, holdings: Holdings | None, *, changed: bool = True) -> None:
        """Replace the states: the one place where that happens.

        Proposals made before are refused from now on, unless nothing ``changed`` but the counts of excluded inputs.
        Batches that wait were for the states before.
        """
        self._holdings, self._waiting = holdings, WaitingBatches(self._waiting.form)
        self.version += changed

    def _require_room(self, batch: Activations) -> None:
        """Refuse a batch before any of it is observed if a state that grows has no room for it."""
        if self._growth is None:
            assert self.layout is not None, "states exist once the layers are known"
            self._growth = GrowthLimit(self.criteria, self.layout)
        if self._holdings is not None:
            if self._growth.looks:
                self.settle()
            self._growth.require([holding.state for holding in self._holdings], batch.size)

    def own_definitions(self) -> dict[str, int]:
        """Return, by criterion, the definition of this version; loaded states may have an earlier one."""
        return {criterion.name: criterion.definition for criterion in self.criteria}

    def check(self, batch: Activations) -> None:
        """Refuse a batch that lacks what a criterion needs, and any for a state of an earlier definition."""
        for criterion in self.criteria:
            measured = self.definitions[criterion.name]
            if measured != criterion.definition:
                raise MismatchError(
                    f"{criterion.name}: measured under definition {measured}, and this version measures under "
                    f"{criterion.definition}: measure again"
                )
            if criterion.learns:
                criterion.require_learnt()
            for need in sorted(criterion.needs):
                if getattr(batch, need) is None:
                    raise InputError(f"{criterion.name} needs {need}: pass them with the batch")

    @in_turn
    def observe(self, batch: Activations, *, kept: bool = False) -> None:
        """Observe a batch; one whose outputs are ``kept``, so that nobody writes to them, may wait for others."""
        self.check(batch)
        self._require_room(batch)
        if kept and self._holdings is not None and self._waiting.may_take(batch):
            waiting = self._waiting.with_batch(batch)
            both = zip(self.criteria, self._holdings, strict=True)
            holdings = tuple(h.observe(c, batch) if c.waits is None else h for c, h in both)
            # In one line: an interruption finds all of it done, or nothing.
            self._holdings, self._waiting, self.version = holdings, waiting, self.version + 1
            if waiting.full:
                self.settle()
            return
        self.advance(tuple(h.observe(c, batch) for c, h in zip(self.criteria, self.holdings, strict=True)))
        self.note(batch)
        if kept:
            self._waiting = replace(self._waiting, form=form_of(batch))

    def settle(self) -> None:
        """Observe the batches that wait."""
        if self._waiting.batches:
            self._settle()

    @in_turn
    def _settle(self) -> None:
        if self._waiting.batches and self._holdings is not None:
            waiting, whole, holdings = self._waiting, self._waiting.joined(), list(self._holdings)
            if any(criterion.waits == "apart" for criterion in self.criteria):
                whole.lend_stacks(waiting.batches)
            for place, criterion in enumerate(self.criteria):
                parts = {None: (), "joined": (whole,), "apart": waiting.batches}[criterion.waits]
                for batch in parts:
                    holdings[place] = holdings[place].observe(criterion, batch)
            self._holdings, self._waiting = tuple(holdings), WaitingBatches(waiting.form)
            if self._seen is not None:
                self._seen.note(self.criteria, whole, times=waiting.times)

    @property
    def keeps_keys(self) -> bool:
        """Return whether the content keys of inputs are kept."""
        return self._seen is not None and self._seen.keeps_keys

    def note(self, batch: Activations, taken: Tensor | None = None, **copies: Tensor | None) -> None:
        """Keep in mind which inputs were observed and which excluded; see ``SeenInputs.note``."""
        if self._seen is not None:
            self._seen.note(self.criteria, batch, taken, times=None, **copies)

    @in_turn
    def observe_one_by_one(self, batch: Activations) -> None:
        """Observe a batch one input at a time, for criteria whose value depends on batching; the others whole."""
        self.check(batch)
        self._require_room(batch)
        observed = []
        for criterion, holding in zip(self.criteria, self.holdings, strict=True):
            whole = SPLIT_FREE in criterion.promises
            for part in [batch] if whole else (batch.take(slice(i, i + 1)) for i in range(batch.size)):
                holding = holding.observe(criterion, part)
            observed.append(holding)
        self.advance(tuple(observed))
        self.note(batch)

    @in_turn
    def admit(self, batch: Activations, *, min_gain: float = 0.0) -> Tensor:
        """Observe inputs in order, each only if some criterion gains more than ``min_gain`` on the state it meets.

        A criterion has no say about inputs that it excludes, and counts them whether they are admitted or not.
        """
        self.check(batch)
        self._require_room(batch)
        if len(self.criteria) == 1:
            admitted, holding = self.holdings[0].admit(self.criteria[0], batch, min_gain)
            self.advance((holding,), changed=bool(admitted.any()))
            self.note(batch, admitted)
            return admitted
        return self._admit_by_any(batch, min_gain)

    def _admit_by_any(self, batch: Activations, min_gain: float) -> Tensor:
        """Admit inputs for several criteria, one input at a time."""
        holdings = self.holdings
        exclusions = torch.stack([criterion.exclusions(batch).cpu() for criterion in self.criteria], dim=1)
        admitted = torch.zeros(batch.size, dtype=torch.bool)
        for index, excluded in enumerate(exclusions.tolist()):
            alone = batch.take(slice(index, index + 1))
            judged = zip(self.criteria, holdings, excluded, strict=True)
            # One that gains is enough: the criteria after it need not be asked.
            if any(not out and float(criterion.gain(h.state, alone)) > min_gain for criterion, h, out in judged):
                holdings = tuple(h.observe(c, alone) for c, h in zip(self.criteria, holdings, strict=True))
                admitted[index] = True
        # Inputs that another criterion admitted were counted when they were observed.
        rest = exclusions[~admitted]
        if rest.any():
            holdings = tuple(h.exclude(rest[:, column]) for column, h in enumerate(holdings))
        self.advance(holdings, changed=bool(admitted.any()))
        admitted = admitted.to(batch.device)
        self.note(batch, admitted)
        return admitted

    @in_turn
    def gain(self, batch: Activations) -> dict[str, Tensor]:
        """Return, by criterion, how far each input alone would move the value."""
        self.check(batch)
        return {c.name: c.gain(s, batch) for c, s in zip(self.criteria, self.states, strict=True)}

    @in_turn
    def scores(self, batch: Activations) -> dict[str, Tensor]:
        """Return the surprise of each input, for the criteria that have one."""
        self.check(batch)
        found = {criterion.name: criterion.score(batch) for criterion in self.criteria}
        return {name: score for name, score in found.items() if score is not None}

    def merge(self, other: CriterionCollection) -> None:
        """Take in what another collection has seen."""
        # Never in both turns at once: another thread may be merging the other way round.
        self._take_in(other.fork())

    @in_turn
    def _take_in(self, other: CriterionCollection) -> None:
        if self.names != other.names:
            raise MismatchError(
                f"criteria differ: this coverage has {', '.join(self.names)}, the other {', '.join(other.names)}"
            )
        if other.layout is None or other.empty:
            return
        self.layout = self.layout or other.layout
        self.layout.require_same(other.layout, "the other coverage")
        theirs = other.share()
        assert theirs is not None
        there = tuple(Shared(move(shared.state, self.layout.device)) for shared in theirs)
        if self.empty:
            self.definitions = dict(other.definitions)
            self.adopt(there)
            return
        self._growth = None
        both = zip(self.criteria, self.holdings, there, strict=True)
        self.advance(tuple(ours.merge(criterion, new) for criterion, ours, new in both))


def within_memory(criteria: Sequence[AnyCriterion], memory: str | int | None) -> tuple[AnyCriterion, ...]:
    """Give criteria a limit on what each may take; those that were given one of their own keep it."""
    if memory is None:
        return tuple(criteria)
    defaults = (next(field.default for field in fields(one) if field.name == "memory") for one in criteria)
    return tuple(
        replace(one, memory=memory) if one.memory == default else one
        for one, default in zip(criteria, defaults, strict=True)
    )


def plain_keys(criteria: Sequence[AnyCriterion]) -> list[str]:
    """Return a short name for each criterion, of letters, digits, dots and underscores: ``nc_0.75``."""
    keys: list[str] = []
    for criterion in criteria:
        key = re.sub(r"[^a-z0-9.]+", "_", criterion.name.lower()).strip("_")
        keys.append(key if key not in keys else f"{key}_{len(keys)}")
    return keys
