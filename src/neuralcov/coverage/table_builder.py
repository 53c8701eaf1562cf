"""Build a table of inputs, batch by batch: some 60 bytes for each input, its id and the values of its metadata."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.counts import NOT_FINITE, VALID
from neuralcov.core.errors import InputError
from neuralcov.core.input_names import Plain
from neuralcov.core.optional_figures import NO_WORD
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.words import Words
from neuralcov.results.input_table import InputTable

# Numbers stay on the device until those of so many inputs have come together.
_ROWS_AT_ONCE = 1 << 16
# Values of one column that are told to be the same, so that each is kept once.
_KNOWN_VALUES = 4096


class _Numbers:
    """Gather numbers of one column, a tensor for each batch or ``None`` for one that has none."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._pending: list[tuple[int, Tensor | None]] = []
        self._rows = 0
        self._parts: list[np.ndarray | int] = []

    def add(self, size: int, numbers: Tensor | None) -> None:
        """Add those of one batch. Nothing waits for the device before many have come together."""
        self._pending.append((size, numbers))
        self._rows += size
        if self._rows >= _ROWS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        pending, self._pending, self._rows = self._pending, [], 0
        tensors = [numbers.to(self._dtype) for _, numbers in pending if numbers is not None]
        if len(tensors) == len(pending):
            self._parts += [torch.cat(tensors).cpu().numpy()] if tensors else []
        else:
            self._parts += [size if numbers is None else numbers.cpu().numpy() for size, numbers in pending]

    def column(self) -> Sequence[Any] | None:
        """Return all numbers; ``None`` where no batch had any."""
        self._settle()
        arrays = [part for part in self._parts if isinstance(part, np.ndarray)]
        if not arrays:
            return None
        if len(arrays) == len(self._parts):
            joined: Any = np.concatenate(arrays)
            return joined  # type: ignore[no-any-return]
        return [value for part in self._parts for value in (part if isinstance(part, np.ndarray) else [None] * part)]


class _Values:
    """Gather values of metadata; equal ones are kept once as long as they are few."""

    def __init__(self, rows: int) -> None:
        self.values: list[Plain] = [None] * rows
        self._known: dict[tuple[type, Plain], Plain] = {}

    def add(self, values: Sequence[Plain]) -> None:
        """Add those of one batch."""
        for value in values:
            if len(self._known) < _KNOWN_VALUES:
                self._known.setdefault((type(value), value), value)
            self.values.append(self._known.get((type(value), value), value))


def require_names(collection: CriterionCollection, gains: Collection[str]) -> set[str]:
    """Return names of criteria whose gains are asked for; refuse one that is none."""
    unknown = next((name for name in gains if name not in collection.names), None)
    if unknown is not None:
        raise InputError(f"gains: there is no criterion {unknown!r}; there are {', '.join(collection.names)}")
    return set(gains)


class TableBuilder:
    """Note what criteria say of every input.

    Args:
        collection: the criteria and their states.
        judged: whether inputs are not observed: then gains stand in place of what each is the first to show.
        gains: names of criteria whose gains to note in any case.
    """

    def __init__(self, collection: CriterionCollection, *, judged: bool = False, gains: Collection[str] = ()) -> None:
        self._collection, self._judged = collection, judged
        self._gaining = set(collection.names) if judged else require_names(collection, gains)
        self._ids: list[Plain] = []
        self._inputs = 0
        self._tokens = _Numbers(torch.int64)
        self._metadata: dict[str, _Values] = {}
        self._labels, self._predictions = _Numbers(torch.int64), _Numbers(torch.int64)
        self._exclusions = {name: _Numbers(torch.uint8) for name in collection.names}
        self._first = {name: _Numbers(torch.int32) for name in collection.names}
        self._gains = {name: _Numbers(torch.float64) for name in collection.names}
        self._scores = {name: _Numbers(torch.float64) for name in collection.names}
        self._keys = _Numbers(torch.int64)
        self._groupings: dict[str, _Numbers] = {}

    def add(self, batch: Activations) -> None:
        """Note the inputs of a batch that was not observed yet."""
        size, before = batch.size, len(self._ids)
        self._ids.extend(self._usual_ids(batch) if batch.ids is None else batch.ids)
        self._tokens.add(size, None if batch.tokens is None else batch.tokens[:, 1])
        for column in (*self._metadata, *(name for name in batch.metadata if name not in self._metadata)):
            values = self._metadata.setdefault(column, _Values(before))
            values.add(batch.metadata.get(column, (None,) * size))
        # Keys of activations are those of the model as well, and tell no two models' inputs to be the same.
        self._keys.add(size, batch.keys if self._collection.keeps_keys else None)
        self._labels.add(size, batch.labels)
        self._predictions.add(size, batch.predictions)
        for criterion, state in zip(self._collection.criteria, self._collection.states, strict=True):
            name = criterion.name
            exclusions = criterion.exclusions(batch)
            self._exclusions[name].add(size, exclusions)
            for grouping, words in criterion.groupings(batch).items():
                numbers = self._groupings.setdefault(f"{name}.{grouping}", _Numbers(torch.int64))
                numbers.add(size, words.masked_fill(exclusions != VALID, NO_WORD))
            self._scores[name].add(size, criterion.score(batch))
            self._first[name].add(size, None if self._judged else criterion.first_shown(state, batch))
            if name in self._gaining:
                self._gains[name].add(size, criterion.gain(state, batch))

    def _usual_ids(self, batch: Activations) -> list[int]:
        """Return the number of each input in the run; tokens have that of the input they are of."""
        if batch.tokens is None:
            return list(range(len(self._ids), len(self._ids) + batch.size))
        numbers: list[int] = (batch.tokens[:, 0] + self._inputs).tolist()
        self._inputs = max(numbers, default=self._inputs - 1) + 1
        return numbers

    def table(self) -> InputTable:
        """Return the table."""
        columns: dict[str, Any] = {"id": self._ids, "token": self._tokens.column(), "key": None}
        columns |= {name: column.values for name, column in self._metadata.items()}
        columns["key"] = self._key_column()
        columns |= {"label": self._labels.column(), "prediction": self._predictions.column()}
        columns["excluded"] = self._excluded()
        for name in self._collection.names:
            columns[f"{name}.first"] = self._first[name].column()
            columns[f"{name}.gain"] = self._gains[name].column()
            columns[f"{name}.score"] = self._scores[name].column()
        for name, numbers in self._groupings.items():
            words = numbers.column()
            columns[name] = Words(words, NO_WORD) if isinstance(words, np.ndarray) else None
        return InputTable({name: column for name, column in columns.items() if column is not None})

    def _key_column(self) -> Words | None:
        """Return the inputs' content keys as the coverage tells them apart; ``None`` if those of some are not known."""
        keys, seen = self._keys.column(), self._collection.seen
        if seen is None or not isinstance(keys, np.ndarray):
            return None
        return Words(seen.rule.words(torch.from_numpy(keys)))

    def _excluded(self) -> list[str]:
        """Say for each input which criteria excluded it and why; nothing if none did."""
        said = [""] * len(self._ids)
        found = {criterion: self._exclusions[criterion.name].column() for criterion in self._collection.criteria}
        reasons = {criterion: np.asarray([] if column is None else column) for criterion, column in found.items()}
        for row in np.flatnonzero(np.any([column != VALID for column in reasons.values()], axis=0)):
            said[row] = _sentence({criterion: int(column[row]) for criterion, column in reasons.items()})
        return said


def _sentence(reasons: dict[AnyCriterion, int]) -> str:
    """Say why criteria excluded an input."""
    if set(reasons.values()) == {NOT_FINITE}:
        return "NaN or infinite outputs"
    parts = [
        f"{criterion.name}: {'NaN or infinite outputs' if reason == NOT_FINITE else 'no place for it'}"
        for criterion, reason in reasons.items()
        if reason != VALID
    ]
    return "; ".join(parts)
