"""Assess a suite: observe every batch, and on the way slice by slice and input by input where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.input_names import CLASS
from neuralcov.coverage import reducing
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.measurement import Assessed, Measurement
from neuralcov.coverage.slices import SliceStates, check_columns
from neuralcov.coverage.table_builder import TableBuilder
from neuralcov.distributed import Ranks
from neuralcov.results import InputTable
from neuralcov.tap.inputs import Lengths


@dataclass(eq=False)
class _Watch:
    """Look at every batch of a run for slices, for a table of inputs, or for both."""

    measurement: Measurement
    slices: tuple[str, ...]
    per_input: bool
    states: SliceStates | None = None
    table: TableBuilder | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for column in self.slices if column != CLASS)

    @property
    def wants_classes(self) -> bool:
        return self.per_input or CLASS in self.slices

    @ordinary_tensors
    def watch(self, batch: Activations) -> None:
        collection = self.measurement.collection
        if self.slices:
            self.states = self.states or SliceStates(self.slices, collection)
            self.states.observe(batch)
        if self.per_input:
            self.table = self.table or TableBuilder(collection)
            self.table.add(batch)


def assess_group(
    ours: Measurement,
    reader: BatchReader,
    data: Any,
    ranks: Ranks | None,
    sync: str,
    *,
    lengths: Lengths | None,
    progress: bool | None,
    slices: Sequence[str],
    per_input: bool,
) -> None:
    """Observe every batch of a loader, and those of the other processes where there are some."""
    if sync not in reducing.SYNCS:
        raise InputError(f"sync={sync!r}: expected {' or '.join(map(repr, reducing.SYNCS))}")
    if ranks is None:
        assess(ours, reader, data, lengths=lengths, progress=progress, slices=slices, per_input=per_input)
        return
    if slices or per_input:
        raise InputError("slices= and per_input= look at all inputs in one process: leave them or group= out")
    reducing.assess(
        ours,
        ranks,
        sync,
        lambda: reader.assess(data, lengths, progress, may_be_empty=True),
        lambda: reducing.assess_by_steps(ours, reader, ranks, data, lengths, progress),
    )


def assess(
    ours: Measurement,
    reader: BatchReader,
    data: Any,
    *,
    lengths: Lengths | None,
    progress: bool | None,
    slices: Sequence[str],
    per_input: bool,
) -> None:
    """Observe every batch of a loader; keep what slices cover and the table of inputs with the measurement."""
    columns = check_columns(slices)
    if not columns and not per_input:
        reader.assess(data, lengths, progress)
        return
    watch = _Watch(ours, columns, per_input)
    reader.assess(data, lengths, progress, watch)
    with ours.collection.turn:
        tables = () if watch.states is None else watch.states.tables()
        rows = None if watch.table is None else watch.table.table()
        ours.assessed = Assessed(ours.collection.version, tables, rows)


def judge(
    ours: Measurement, reader: BatchReader, data: Any, *, lengths: Lengths | None, progress: bool | None
) -> InputTable:
    """Return a table of gains and scores of every input of a loader; nothing is observed."""
    builder: TableBuilder | None = None
    with reader.first(), reader.open():
        for batch in reader.batches(data, None, None, None, lengths, "judging", progress, readable=True):
            reader.watch()
            with ours.collection.turn:
                ours.collection.check(batch)
                builder = builder or TableBuilder(ours.collection, gains=True)
                ordinary_tensors(builder.add)(batch)
    if builder is None:
        raise InputError("the data gave no batch: nothing was judged")
    return builder.table()
