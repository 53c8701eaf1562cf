"""The base of criteria that collect kinds: a set that grows, and each criterion's own rule for what inputs show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.abundance import Estimate, chance_of_new, kinds_of_more, kinds_to_come, rarefied, shown_times
from neuralcov.core.activations import Activations
from neuralcov.core.cost import Cost, Workload, tensor_bytes
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID, count_admitted, no_counts
from neuralcov.core.criterion import (
    ALL_PROMISES,
    DUPLICATE_FREE,
    MERGE_EXACT,
    ORDER_FREE,
    SPLIT_FREE,
    SUBMODULAR,
    Criterion,
    State,
    widths_of,
)
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.bottom_kinds import bottom, sample
from neuralcov.criteria.kind_set import (
    ABSENT,
    FOLD_COUNT,
    MARK,
    KindSet,
    as_kinds,
    as_members,
    looking_is_free,
)
from neuralcov.criteria.shown_kinds import ShownKinds, fold_bits, input_counts

_NO_KEYS = torch.zeros(0, 2, dtype=torch.int64)

__all__ = ["ABSENT", "DistinctCriterion", "DistinctState"]


@dataclass(frozen=True, eq=False)
class DistinctState(State, name="distinct"):
    """The kinds shown so far in each of so many columns, with how often each was.

    ``by_fold`` counts the kinds that the inputs of each fold have shown in each column, repeated ones included;
    ``None`` if nobody asks for folds.
    """

    seen: KindSet
    columns: int
    by_fold: Int[Tensor, "columns folds"] | None = None


@dataclass(frozen=True, eq=False)
class DistinctCriterion(Criterion[DistinctState], base=True):
    """Collect kinds: the value is how many different ones the inputs show.

    ``kinds`` gives, for each input, a kind in each of k columns, and each column keeps a set of its own. Kinds may
    have ``weights``, and columns may be brought together in another way than by their sum: ``reduce``.
    """

    waits = "joined"

    hashed: ClassVar[bool] = False
    """Whether the first words of keys alone tell kinds apart, as hashes do; then they need not be mixed."""

    prepared: ClassVar[bool] = False
    """Whether kinds are found without waiting for the device, so that finding them can be recorded."""

    marked: ClassVar[bool] = False
    """Whether a number is kept with each kind; then ``marks`` gives it."""

    folded: ClassVar[bool] = False
    """Whether it is kept which of ten folds of the inputs have shown each kind, for errors by leaving one out."""

    @property
    def kept(self) -> int | None:
        """Return of how many kinds a sketch keeps in each column, ``None`` where all are kept."""
        return None

    @property
    def linear(self) -> bool:
        """Return whether ``reduce`` is a linear function of the columns' sums."""
        return True

    @property
    @override
    def promises(self) -> frozenset[str]:
        if self.kept is not None:
            return frozenset({ORDER_FREE, SPLIT_FREE, MERGE_EXACT, DUPLICATE_FREE})
        # A median of sums may first stand still and then move: what an input gains can rise as others come in.
        return ALL_PROMISES if self.linear else ALL_PROMISES - {SUBMODULAR}

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
        """Return the value that the columns' sums amount to, a function of them that falls with none.

        Say in ``linear`` if it is not a linear one.
        """
        return sums.sum(-1)

    def marks(self, batch: Activations) -> Int[Tensor, "batch k"]:
        """Return the number to keep with each kind of a batch, the same whenever a kind is shown, if ``marked``."""
        raise NotImplementedError(f"{type(self).__name__} sets marked = True: define marks(batch)")

    def weights_of(self, batch: Activations) -> Float[Tensor, "batch k"]:
        """Return what each kind of a batch counts."""
        kinds = self._shown(batch).kinds
        weights = torch.ones(kinds.shape[:2], dtype=torch.float64, device=kinds.device)
        for column in range(kinds.shape[1]):
            own = self.weights(kinds[:, column], column)
            if own is not None:
                weights[:, column] = own
        return weights

    def sums(self, state: DistinctState) -> Float[Tensor, "k"]:
        """Return what the kinds of each column count together."""
        if self.kept is not None:
            inside, share = sample(state.seen, self.kept, state.columns)
            return self._sums(state.seen.each(lambda part: part[inside]), state.columns) / share
        return self._sums(state.seen, state.columns)

    def _sums(self, seen: KindSet, columns: int) -> Float[Tensor, "k"]:
        if seen.columns is None and self._counts_kinds:
            return seen.count().double()[None]
        present = seen.present()
        sums = torch.zeros(columns, dtype=torch.float64, device=present.device)
        if seen.columns is not None and self._counts_kinds:
            return sums.index_add_(0, seen.columns, present.double())
        for column in range(columns):
            mine = present if seen.columns is None else present & (seen.columns == column)
            own = as_kinds(seen.keys, None if seen.columns is None else column, hashed=self.hashed)
            weights = self.weights(own, column)
            sums[column] = mine.sum() if weights is None else torch.where(mine, weights, 0).sum()
        return sums

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

        Only where an input shows one kind, so that inputs are a sample of kinds; see ``neuralcov.core.abundance``.
        """
        counts = self.times_shown(state)
        if state.columns != 1 or counts is None or not len(counts):
            return {}
        if self.kept is not None:
            once, twice = self._shown_times(state, 1), self._shown_times(state, 2)
            to_come = kinds_to_come(once, twice)
            chance = once / int(state.counts[VALID])
            return {"next": chance, "to_come": to_come.value, "to_come_error": to_come.error}
        to_come = kinds_to_come(shown_times(counts, 1), shown_times(counts, 2))
        return {"next": chance_of_new(counts), "to_come": to_come.value, "to_come_error": to_come.error}

    def _shown_times(self, state: DistinctState, times: int) -> float:
        """Estimate how many kinds of the one column were shown so many times."""
        assert self.kept is not None
        inside, share = sample(state.seen, self.kept, 1)
        return shown_times(state.seen.counts[inside], times) / float(share)

    @override
    def rarefied(self, state: DistinctState, inputs: int) -> Estimate | None:
        counts = self.times_shown(state)
        if self.kept is not None or state.columns != 1 or counts is None or inputs > int(counts.sum()):
            return None
        weights = self.weights(as_kinds(state.seen.compact().keys, 0), 0)
        found = rarefied(counts, weights, inputs)
        value, scale = (self.reduce(torch.tensor([part], dtype=torch.float64)) for part in (found.value, found.error))
        return Estimate(float(value), float(scale))

    @override
    def lacking(self, field: DistinctState, suite: DistinctState) -> tuple[Int[Tensor, "kinds"], ...] | None:
        counts, shown = self.times_shown(field), field.seen.compact()
        if counts is None or self.kept is not None:
            return None
        missing = ~suite.seen.contains(shown.keys)
        columns = torch.zeros_like(counts) if shown.columns is None else shown.columns
        found = (counts[missing & (columns == column)] for column in range(field.columns))
        return tuple(some.sort(descending=True).values for some in found)

    @override
    def forecast(self, state: DistinctState, inputs: int) -> float | None:
        counts = self.times_shown(state)
        if self.kept is not None or state.columns != 1 or counts is None or not len(counts) or not self._counts_kinds:
            return None
        once, twice, shown = shown_times(counts, 1), shown_times(counts, 2), int(counts.sum())
        kinds = len(counts) + kinds_of_more(once, twice, shown, max(0, inputs - shown))
        return float(self.reduce(torch.tensor([kinds], dtype=torch.float64)))

    @override
    def init(self, layout: Layout) -> DistinctState:
        columns = self.columns(layout)
        seen = KindSet.empty(columns, layout.device, marked=self.marked, folded=self.folded)
        by_fold = torch.zeros(columns, FOLD_COUNT, dtype=torch.int64, device=layout.device) if self.folded else None
        return DistinctState(no_counts(layout), widths_of(layout), seen, columns, by_fold)

    @override
    def cost(self, layout: Layout, workload: Workload) -> Cost:
        empty = self.init(layout)
        kinds = tensor_bytes(empty.seen.each(lambda part: part.new_empty(1, *part.shape[1:])))
        # What calibration gathers for these goes to disk where there is much of it.
        count = workload.inputs if self.kept is None else min(workload.inputs, self.kept)
        return Cost(tensor_bytes(empty) + kinds * empty.columns * count, grows=True, to_disk=True)

    @override
    def observe(self, state: DistinctState, batch: Activations, *, donate: bool = False) -> DistinctState:
        shown = self._shown(batch)
        return self._with(replace(state, counts=state.counts + input_counts(shown)), batch, shown.valid)

    def _with(self, state: DistinctState, batch: Activations, inputs: Bool[Tensor, "batch"]) -> DistinctState:
        """Return the state with the kinds of some inputs of a batch."""
        shown = self._shown(batch)
        entries = shown.of_inputs(inputs)
        state = replace(state, seen=self._cut(state.seen.add(shown.entries, entries), state.columns))
        if state.by_fold is None:
            return state
        dealt = torch.nn.functional.one_hot(batch.folds(FOLD_COUNT), FOLD_COUNT).double()
        return replace(state, by_fold=state.by_fold + (shown.by_input(entries).double().T @ dealt).long())

    @override
    def prepare(self, batch: Activations) -> None:
        if self.prepared:
            # Looked at, so that it is computed now.
            assert self._shown(batch).valid is not None

    @override
    def merge(self, a: DistinctState, b: DistinctState) -> DistinctState:
        by_fold = None if a.by_fold is None or b.by_fold is None else a.by_fold + b.by_fold
        seen = self._cut(a.seen.union(b.seen), a.columns)
        return replace(a, counts=a.counts + b.counts, seen=seen, by_fold=by_fold)

    def _cut(self, seen: KindSet, columns: int) -> KindSet:
        return seen if self.kept is None else bottom(seen, self.kept, columns)

    @override
    def value(self, state: DistinctState) -> Float[Tensor, ""]:
        return self.reduce(self.sums(state))

    @override
    def gain(self, state: DistinctState, batch: Activations) -> Float[Tensor, "batch"]:
        if self.kept is not None:
            return super().gain(state, batch)
        shown = self._shown(batch)
        fresh = shown.by_input(~state.seen.contains(shown.entries.keys) & shown.of_inputs(shown.valid))
        more = fresh.double() if self._counts_kinds else torch.where(fresh, self.weights_of(batch), 0)
        if self.linear:
            return self.reduce(more)
        sums = self.sums(state)
        return self.reduce(sums + more) - self.reduce(sums)

    @override
    def admit(
        self, state: DistinctState, batch: Activations, *, min_gain: float = 0.0
    ) -> tuple[Bool[Tensor, "batch"], DistinctState]:
        """Admit, in order, inputs that show a kind which nothing before them has.

        An input whose kinds are all known adds nothing, and neither does one whose kind counts too little, whenever it
        comes: so the first to show a kind is admitted, and all inputs can be looked at together. Where columns do not
        simply add up, what an input gains depends on those before it, and they are judged one by one.
        """
        shown = self._shown(batch)
        if self.kept is not None or min_gain < 0 or not self.linear or (min_gain > 0 and state.columns > 1):
            return super().admit(state, batch, min_gain=min_gain)
        # What each kind alone amounts to.
        enough = self.reduce(torch.diag_embed(self.weights_of(batch))) > min_gain
        first = state.seen.firsts(shown.entries.keys, enough.view(-1) & shown.of_inputs(shown.valid))
        admitted = shown.by_input(first).any(1)
        counts = count_admitted(state.counts, admitted, self.exclusions(batch))
        if looking_is_free(admitted.device) and not bool(admitted.any()):
            return admitted, replace(state, counts=counts)
        return admitted, self._with(replace(state, counts=counts), batch, admitted)

    @override
    def first_shown(self, state: DistinctState, batch: Activations) -> Int[Tensor, "batch"] | None:
        """Count the kinds that each input is the first to show, in all columns; a sketch does not tell."""
        if self.kept is not None:
            return None
        shown = self._shown(batch)
        return shown.by_input(state.seen.firsts(shown.entries.keys, shown.of_inputs(shown.valid))).sum(1)

    @override
    def exclusions(self, batch: Activations) -> Int[Tensor, "batch"]:
        shown = self._shown(batch)
        return torch.where(shown.valid, VALID, torch.where(shown.finite, NOT_PLACEABLE, NOT_FINITE))

    @property
    def _counts_kinds(self) -> bool:
        """Whether every kind counts 1."""
        cls = type(self)
        if cls.weights_of is not DistinctCriterion.weights_of:
            return False
        if cls.weights is DistinctCriterion.weights:
            return True
        return cls.columns is DistinctCriterion.columns and self.weights(_NO_KEYS, 0) is None

    def _shown(self, batch: Activations) -> ShownKinds:
        """Find a batch's kinds once: what is judged is often taken in as well."""

        def compute() -> tuple[object, ShownKinds]:
            kinds, finite = self.kinds(batch), self.finite(batch)
            members, columns, present = as_members(kinds, hashed=self.hashed)
            marks = self.marks(batch).to(MARK).reshape(-1) if self.marked else None
            folds = fold_bits(batch, kinds.shape[1]) if self.folded else None
            # The criterion is kept with the result, so that its id stays its own.
            return self, ShownKinds(kinds, KindSet.of(members, columns, marks, folds), present, finite)

        return batch.shared(("kinds", id(self)), compute)[1]
