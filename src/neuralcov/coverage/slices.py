"""What slices of a suite cover alone, and what the suite would lose without each: a state for every slice.

The slices of one column have every input once. So all inputs but those of one slice are the other slices merged, which
is exact for criteria that promise it: one pass over the data and one state per slice tell everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import MERGE_EXACT, Criterion, State
from neuralcov.core.errors import InputError
from neuralcov.core.input_names import CLASS, Plain
from neuralcov.core.layout import Layout
from neuralcov.core.memory import show_bytes
from neuralcov.core.records import map_tensors
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.ownership import Holding, Owned
from neuralcov.coverage.suite_counts import decisions_of
from neuralcov.results.slices import SliceRow, SliceTable

# Slices of one column; values that come after these share one more slice.
MOST_SLICES = 1000
# Bytes that the states of all slices may take.
SLICE_MEMORY = 2 << 30
OTHERS = "(all others)"
# So many wrong answers of a class are named.
_MISTAKES = 3
_NOT_GIVEN = "(none)"


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to slice by; refuse what is no list of names."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"slices={columns!r}: expected names of columns, such as ('weather', 'class')")
    return tuple(dict.fromkeys(names))


@dataclass(eq=False)
class _Slice:
    """Hold the states of one slice, by criterion, the number of its inputs, and how many the model is right about."""

    inputs: int = 0
    judged: int = 0
    right: int = 0
    mistaken: Counter[int] = field(default_factory=Counter)
    states: dict[str, Holding[Any]] = field(default_factory=dict)

    def note_answers(self, labels: Sequence[int], decisions: Sequence[int], *, named: bool) -> None:
        """Note which answers are right, and with ``named`` what was said in place of the others."""
        wrong = [said for label, said in zip(labels, decisions, strict=True) if label != said]
        self.judged += len(labels)
        self.right += len(labels) - len(wrong)
        if named:
            self.mistaken.update(wrong)

    @property
    def most_mistaken(self) -> dict[str, int]:
        """What wrong answers say most often, and how often."""
        order = sorted(self.mistaken, key=lambda said: (-self.mistaken[said], said))
        return {str(said): self.mistaken[said] for said in order[:_MISTAKES]}


class SliceStates:
    """Observe a suite slice by slice.

    Args:
        columns: names of metadata columns, or ``"class"``.
        collection: the criteria, with what was observed before the suite.
        memory: bytes that all states may take.
        most: slices of one column.
    """

    def __init__(
        self,
        columns: Sequence[str],
        collection: CriterionCollection,
        *,
        memory: int = SLICE_MEMORY,
        most: int = MOST_SLICES,
    ) -> None:
        self._collection = collection
        self._before = collection.share()
        self._criteria: list[AnyCriterion] = list(collection.criteria)
        self._slices: dict[str, dict[Plain, _Slice]] = {column: {} for column in columns}
        self._memory, self._most = memory, most
        self._notes: list[str] = []
        self._largest: dict[str, int] = {}

    def observe(self, batch: Activations) -> None:
        """Observe a batch, each input in its slice of every column."""
        decisions = decisions_of(batch)
        answers = None
        if batch.labels is not None and decisions is not None:
            answers = batch.labels.tolist(), decisions.tolist()
        for column, slices in self._slices.items():
            for value, rows in _by_value(_values(batch, column, first=not slices)).items():
                name = value if value in slices or len(slices) < self._most else OTHERS
                found = slices.get(name) or self._begin(column, name, batch.layout)
                part = batch if len(rows) == batch.size else batch.take(torch.tensor(rows, device=batch.device))
                found.inputs += len(rows)
                if answers is not None:
                    found.note_answers(*([given[row] for row in rows] for given in answers), named=column == CLASS)
                for criterion in self._criteria:
                    found.states[criterion.name] = found.states[criterion.name].observe(criterion, part)

    def _begin(self, column: str, value: Plain, layout: Layout) -> _Slice:
        """Begin a slice; leave out criteria whose states would take too much memory."""
        count = 1 + sum(len(slices) for slices in self._slices.values())
        sizes = {criterion.name: self._size(criterion, layout) for criterion in self._criteria}
        while self._criteria and count * sum(sizes.values()) > self._memory:
            largest = max(sizes, key=lambda name: sizes[name])
            self._notes.append(
                f"{largest} was left out of slices: {count} states of {show_bytes(sizes[largest])} and those of other "
                f"criteria are more than {show_bytes(self._memory)}"
            )
            self._criteria = [criterion for criterion in self._criteria if criterion.name != largest]
            del sizes[largest]
            for slices in self._slices.values():
                for some in slices.values():
                    some.states.pop(largest, None)
        found = _Slice(states={criterion.name: Owned(criterion.init(layout)) for criterion in self._criteria})
        self._slices[column][value] = found
        return found

    def _size(self, criterion: AnyCriterion, layout: Layout) -> int:
        """Return the bytes of one state: of an empty one, or of the largest so far."""
        if criterion.name not in self._largest:
            self._largest[criterion.name] = _bytes_of(criterion.init(Layout(layout.widths, "meta")))
        last = next((one for slices in self._slices.values() for one in reversed(slices.values())), None)
        if last is not None and criterion.name in last.states:
            size = _bytes_of(last.states[criterion.name].state)
            self._largest[criterion.name] = max(self._largest[criterion.name], size)
        return self._largest[criterion.name]

    def tables(self) -> tuple[SliceTable, ...]:
        """Return what every slice covers alone, and what all that was observed would lose without it."""
        return tuple(self._table(column, slices) for column, slices in self._slices.items())

    def _table(self, column: str, slices: dict[Plain, _Slice]) -> SliceTable:
        order = sorted(slices, key=_rank)
        if not order:
            return SliceTable(column, ())
        alone: dict[str, list[float | None]] = {}
        lost: dict[str, list[float | None]] = {}
        notes = list(self._notes)
        for criterion in self._criteria:
            states = [slices[value].states[criterion.name].state for value in order]
            alone[criterion.name] = _numbers(torch.stack([criterion.value(state) for state in states]))
            if MERGE_EXACT not in criterion.promises:
                notes.append(
                    f"{criterion.name}: what a slice adds to the others is not told, for want of exact merging"
                )
                continue
            all_inputs, before = self._of_all(criterion)
            rest = torch.stack(list(without_each(criterion, states, before, self._collection.layout)))
            lost[criterion.name] = _numbers(criterion.value(all_inputs) - rest)
        if OTHERS in slices:
            notes.append(f"{column} has more than {self._most} values: those that came later are one slice, {OTHERS}")
        rows = tuple(
            SliceRow(
                _NOT_GIVEN if value is None else str(value),
                slices[value].inputs,
                {name: alone[name][i] if name in alone else None for name in self._collection.names},
                {name: lost[name][i] if name in lost else None for name in self._collection.names},
                slices[value].judged,
                slices[value].right,
                slices[value].most_mistaken,
            )
            for i, value in enumerate(order)
        )
        return SliceTable(column, rows, tuple(notes))

    def _of_all(self, criterion: AnyCriterion) -> tuple[State, State | None]:
        """Return a criterion's state of all that was observed, and that of what came before the suite."""
        index = self._collection.names.index(criterion.name)
        return self._collection.states[index], None if self._before is None else self._before[index].state


def _values(batch: Activations, column: str, *, first: bool) -> Sequence[Plain]:
    """Return the value of each input in a column; refuse a column that the first batch lacks."""
    if column == CLASS:
        classes = batch.predictions if batch.labels is None else batch.labels
        if classes is None:
            raise InputError(
                "slices by class: the batches have no labels, and the model's output no classes; pass predict=, a "
                "function from the output to one class per input"
            )
        return classes.tolist()
    if column in batch.metadata:
        return batch.metadata[column]
    if first:
        there = ", ".join([*batch.metadata, CLASS])
        raise InputError(
            f"slices by {column!r}: the batches have no such column, but {there}; name it in metadata= if they are "
            "mappings, or let unpack= return an nc.Batch with metadata"
        )
    return (None,) * batch.size


def _by_value(values: Sequence[Plain]) -> dict[Plain, list[int]]:
    """Return the rows that share a value."""
    found: dict[Plain, list[int]] = {}
    for row, value in enumerate(values):
        # No number is equal to NaN, itself included.
        found.setdefault(None if isinstance(value, float) and math.isnan(value) else value, []).append(row)
    return found


def _rank(value: Plain) -> tuple[int, float, str]:
    """Put numbers before texts, and what is no value of its own last."""
    if value is None or value == OTHERS:
        return 2, 0.0, str(value)
    return (1, 0.0, value) if isinstance(value, str) else (0, float(value), "")


def without_each(
    criterion: Criterion[State], states: Sequence[State], outside: State | None, layout: Layout | None
) -> Iterator[Tensor]:
    """Yield the value of all states but each of them, merged with what lies outside.

    What lies outside a half of the states is the other half and what lay outside before: so each state is merged once
    at every halving, and few merged ones exist at a time.
    """
    if len(states) == 1:
        assert layout is not None
        yield criterion.value(criterion.init(layout) if outside is None else outside)
        return
    middle = len(states) // 2
    for half, rest in ((states[:middle], states[middle:]), (states[middle:], states[:middle])):
        merged = outside
        for state in rest:
            merged = state if merged is None else criterion.merge(merged, state)
        yield from without_each(criterion, half, merged, layout)


def _bytes_of(state: State) -> int:
    tensors: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(note, state)
    return sum(tensor.nbytes for tensor in tensors)


def _numbers(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
