"""The base of criteria that collect kinds: a set that grows, and each criterion's own rule for what inputs show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.abundance import Estimate, chance_of_new, kinds_to_come, rarefied
from neuralcov.core.activations import Activations
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID, count_admitted, no_counts
from neuralcov.core.criterion import ALL_PROMISES, Criterion, State, widths_of
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.kind_set import ABSENT, KindSet, as_kinds, as_members, looking_is_free

_NO_KEYS = torch.zeros(0, 2, dtype=torch.int64)

__all__ = ["ABSENT", "DistinctCriterion", "DistinctState"]


@dataclass(frozen=True, eq=False)
class DistinctState(State, name="distinct"):
    """The kinds shown so far in each of so many columns, with how often each was."""

    seen: KindSet
    columns: int


@dataclass(frozen=True, eq=False)
class _Batch:
    """What a batch shows: its kinds, the same as the set keeps them, and the inputs that show any."""

    kinds: Int[Tensor, "batch columns 2"]
    members: Int[Tensor, "entries 2"]
    columns: Int[Tensor, "entries"] | None
    present: Bool[Tensor, "batch columns"]
    finite: Bool[Tensor, "batch"]

    @cached_property
    def valid(self) -> Bool[Tensor, "batch"]:
        """Return inputs that take part: finite, and with a kind in some column."""
        return self.finite & (self.present[:, 0] if self.columns is None else self.present.any(1))

    def entries(self, inputs: Bool[Tensor, "batch"]) -> Bool[Tensor, "entries"]:
        """Return the entries that some inputs have a kind in."""
        # Where there is one column, a valid input has a kind in it.
        return inputs if self.columns is None else (inputs[:, None] & self.present).view(-1)

    def by_input(self, entries: Tensor) -> Tensor:
        """Return what belongs to entries by input and column."""
        return entries.view(self.kinds.shape[:2])


@dataclass(frozen=True, eq=False)
class DistinctCriterion(Criterion[DistinctState], base=True):
    """Collect kinds: the value is how many different ones the inputs show.

    :meth:`kinds` gives, for each input, a kind in each of k columns, and each column keeps a set of its own. Kinds may
    have :meth:`weights`, and columns may be brought together in another way than by their sum: :meth:`reduce`.
    """

    hashed: ClassVar[bool] = False
    """Whether the first words of keys alone tell kinds apart, as hashes do; then they need not be mixed."""

    @property
    @override
    def promises(self) -> frozenset[str]:
        return ALL_PROMISES

    @abstractmethod
    def kinds(self, batch: Activations) -> Int[Tensor, "batch k 2"]:
        """Return the 128-bit key of what each input shows in each column; ``ABSENT`` in both words for nothing.

        An input that shows nothing at all is excluded; one that is not finite is, whatever it shows.
        """

    def columns(self, layout: Layout) -> int:
        """Return k, the number of columns."""
        return 1

    def weights(self, keys: Int[Tensor, "n 2"], column: int) -> Float[Tensor, "n"] | None:
        """Return what each kind of a column counts, 0 or more; ``None`` if every one counts 1."""
        return None

    def reduce(self, sums: Float[Tensor, "*rows k"]) -> Float[Tensor, "*rows"]:
        """Return the value that the columns' sums amount to, a linear function of them that falls with none."""
        return sums.sum(-1)

    def finite(self, batch: Activations) -> Bool[Tensor, "batch"]:
        """Return which inputs are finite in the layers that matter here."""
        return batch.finite

    def times_shown(self, state: DistinctState) -> Int[Tensor, "kinds"] | None:
        """Return how often each kind was shown, or ``None`` where a file did not say. Waits for the device."""
        counts = state.seen.compact().counts
        return None if bool((counts < 0).any()) else counts

    @override
    def details(self, state: DistinctState) -> Mapping[str, float]:
        """Return ``next``, the chance that the next input shows a new kind, and how many kinds are still ``to_come``.

        Only where an input shows one kind, so that inputs are a sample of kinds; see :mod:`neuralcov.core.abundance`.
        """
        counts = self.times_shown(state)
        if state.columns != 1 or counts is None or not len(counts):
            return {}
        to_come = kinds_to_come(counts)
        return {"next": chance_of_new(counts), "to_come": to_come.value, "to_come_error": to_come.error}

    @override
    def rarefied(self, state: DistinctState, inputs: int) -> Estimate | None:
        counts = self.times_shown(state)
        if state.columns != 1 or counts is None or inputs > int(counts.sum()):
            return None
        weights = self.weights(as_kinds(state.seen.compact().keys, 0), 0)
        found = rarefied(counts, weights, inputs)
        value, scale = (self.reduce(torch.tensor([part], dtype=torch.float64)) for part in (found.value, found.error))
        return Estimate(float(value), float(scale))

    @override
    def init(self, layout: Layout) -> DistinctState:
        columns = self.columns(layout)
        return DistinctState(no_counts(layout), widths_of(layout), KindSet.empty(columns, layout.device), columns)

    @override
    def observe(self, state: DistinctState, batch: Activations, *, donate: bool = False) -> DistinctState:
        shown = self._shown(batch)
        seen = state.seen.add(shown.members, shown.entries(shown.valid), shown.columns)
        return replace(state, counts=state.counts + _input_counts(shown), seen=seen)

    @override
    def merge(self, a: DistinctState, b: DistinctState) -> DistinctState:
        return replace(a, counts=a.counts + b.counts, seen=a.seen.union(b.seen))

    @override
    def value(self, state: DistinctState) -> Float[Tensor, ""]:
        seen = state.seen
        if seen.columns is None and self._counts_kinds:
            return self.reduce(seen.count().double()[None])
        present = seen.present()
        sums = torch.zeros(state.columns, dtype=torch.float64, device=present.device)
        if seen.columns is not None and self._counts_kinds:
            return self.reduce(sums.index_add_(0, seen.columns, present.double()))
        for column in range(state.columns):
            mine = present if seen.columns is None else present & (seen.columns == column)
            own = as_kinds(seen.keys, None if seen.columns is None else column, hashed=self.hashed)
            weights = self.weights(own, column)
            sums[column] = mine.sum() if weights is None else torch.where(mine, weights, 0).sum()
        return self.reduce(sums)

    @override
    def gain(self, state: DistinctState, batch: Activations) -> Float[Tensor, "batch"]:
        shown = self._shown(batch)
        fresh = ~state.seen.contains(shown.members) & shown.entries(shown.valid)
        if self._counts_kinds:
            return self.reduce(shown.by_input(fresh).double())
        return self.reduce(torch.where(shown.by_input(fresh), self._weights(shown), 0))

    @override
    def admit(
        self, state: DistinctState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], DistinctState]:
        """Admit, in order, inputs that show a kind which nothing before them has.

        An input whose kinds are all known adds nothing, and neither does one whose kind counts too little, whenever it
        comes: so the first to show a kind is admitted, and all inputs can be looked at together.
        """
        shown = self._shown(batch)
        if min_gain < 0 or (min_gain > 0 and shown.columns is not None):
            return super().admit(state, batch, min_gain=min_gain)
        # What each kind alone amounts to.
        enough = self.reduce(torch.diag_embed(self._weights(shown))) > min_gain
        first = state.seen.firsts(shown.members, enough.view(-1) & shown.entries(shown.valid))
        admitted = shown.by_input(first).any(1)
        counts = count_admitted(state.counts, admitted, self.exclusions(batch))
        if looking_is_free(admitted.device) and not bool(admitted.any()):
            return admitted, replace(state, counts=counts)
        seen = state.seen.add(shown.members, shown.entries(admitted), shown.columns)
        return admitted, replace(state, counts=counts, seen=seen)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        shown = self._shown(batch)
        return torch.where(shown.valid, VALID, torch.where(shown.finite, NOT_PLACEABLE, NOT_FINITE))

    @property
    def _counts_kinds(self) -> bool:
        """Whether every kind counts 1."""
        if type(self).weights is DistinctCriterion.weights:
            return True
        return type(self).columns is DistinctCriterion.columns and self.weights(_NO_KEYS, 0) is None

    def _shown(self, batch: Activations) -> _Batch:
        """Find a batch's kinds once: what is judged is often taken in as well."""

        def compute() -> tuple[object, _Batch]:
            kinds, finite = self.kinds(batch), self.finite(batch)
            members, columns, present = as_members(kinds, hashed=self.hashed)
            # The criterion is kept with the result, so that its id stays its own.
            return self, _Batch(kinds, members, columns, present, finite)

        return batch.shared(("kinds", id(self)), compute)[1]

    def _weights(self, shown: _Batch) -> Float[Tensor, "batch columns"]:
        """Return what the kinds of a batch count."""
        size, columns = shown.kinds.shape[:2]
        weights = torch.ones(size, columns, dtype=torch.float64, device=shown.kinds.device)
        for column in range(columns):
            own = self.weights(shown.kinds[:, column], column)
            if own is not None:
                weights[:, column] = own
        return weights


def _input_counts(shown: _Batch) -> Int[Tensor, "3"]:
    """Count the inputs of a batch: valid, not finite, without a kind."""
    finite, valid = shown.finite.sum(), shown.valid.sum()
    if looking_is_free(finite.device):
        return torch.tensor([int(valid), len(shown.kinds) - int(finite), int(finite) - int(valid)])
    return torch.stack([valid, len(shown.kinds) - finite, finite - valid])
