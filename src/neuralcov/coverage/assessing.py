"""Assess a suite: observe every batch, and note on the way what reports show beside values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.input_names import CLASS
from neuralcov.coverage import reducing
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.sections import Assessed, GrowthRecorder, NeuronRecorder
from neuralcov.coverage.sections.keeper import InputKeeper, nearest_to_uncovered
from neuralcov.coverage.slices import SliceStates, check_columns
from neuralcov.coverage.table_builder import TableBuilder, require_names
from neuralcov.distributed import Ranks
from neuralcov.results import InputTable
from neuralcov.results.sections import GrowthCurve
from neuralcov.tap.inputs import Lengths


@dataclass(eq=False)
class _Watch:
    """Look at every batch of a run for what reports show: slices, neurons, inputs."""

    measurement: Measurement
    slices: tuple[str, ...]
    per_input: bool
    keep_inputs: bool
    gains: tuple[str, ...] = ()
    states: SliceStates | None = None
    table: TableBuilder | None = None
    neurons: NeuronRecorder | None = None
    keeper: InputKeeper | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for column in self.slices if column != CLASS)

    @property
    def wants_classes(self) -> bool:
        return self.per_input or self.keep_inputs or CLASS in self.slices

    @property
    def looks_only(self) -> bool:
        return not (self.slices or self.keep_inputs or self.per_input)

    @ordinary_tensors
    def watch(self, batch: Activations, inputs: Any) -> None:
        ours, collection = self.measurement, self.measurement.collection
        if self.slices:
            self.states = self.states or SliceStates(self.slices, collection)
            self.states.observe(batch)
        if self.keep_inputs:
            self.keeper = self.keeper or InputKeeper(
                collection, ours.learnt.map, ours.provenance.preprocessing, self.gains
            )
            self.keeper.add(inputs, batch)
        elif self.per_input:
            self.table = self.table or TableBuilder(collection, gains=self.gains)
            self.table.add(batch)
        self.neurons = self.neurons or NeuronRecorder(batch.layout, peaks=self.keep_inputs)
        if batch.size:
            self.neurons.add(batch)

    @ordinary_tensors
    def told(self, earlier: Assessed | None, growth: Mapping[str, GrowthCurve]) -> Assessed:
        """Return what was seen, after the last batch.

        Args:
            earlier: what was told of the inputs before these; ``None`` if there were some of which nothing is known.
            growth: curves of these inputs alone.
        """
        collection = self.measurement.collection
        tables = () if self.states is None else self.states.tables()
        table = None if self.table is None else self.table.table()
        extremes, spectra = (None, {}) if self.neurons is None else self.neurons.read()
        found = Assessed(collection.version, tables, table, spectra=spectra)
        if earlier is not None and extremes is not None:
            joined = extremes if earlier.extremes is None else earlier.extremes.joined(extremes)
            found = replace(found, extremes=joined)
        if self.keeper is not None:
            table = self.keeper.table()
            nearest = {}
            # Of inputs that came before these nobody knows which was highest.
            alone = earlier is not None and earlier.extremes is None
            if alone and extremes is not None and extremes.peaks is not None and collection.layout is not None:
                nearest = nearest_to_uncovered(collection, collection.layout, extremes.peaks)
            views = self.keeper.views(table, nearest)
            found = replace(found, table=table, nearest=nearest, views=views, map=self.keeper.map(table))
        return replace(found, growth=growth)


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
    keep_inputs: bool,
    gains: Sequence[str],
) -> None:
    """Observe every batch of a loader, and those of the other processes where there are some."""
    if sync not in reducing.SYNCS:
        raise InputError(f"sync={sync!r}: expected {' or '.join(map(repr, reducing.SYNCS))}")
    if ranks is None:
        looks: dict[str, Any] = {"slices": slices, "per_input": per_input, "keep_inputs": keep_inputs, "gains": gains}
        assess(ours, reader, data, lengths=lengths, progress=progress, **looks)
        return
    if slices or per_input or keep_inputs or gains:
        raise InputError(
            "slices=, per_input=, keep_inputs= and gains= look at all inputs in one process: leave them or group= out"
        )
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
    keep_inputs: bool,
    gains: Sequence[str] = (),
) -> None:
    """Observe every batch of a loader; note with the measurement what reports show beside values."""
    columns, collection = check_columns(slices), ours.collection
    require_names(collection, gains)
    fresh, earlier = collection.empty, ours.last_assessed
    growth = GrowthRecorder(collection, len(data) if isinstance(data, Sized) else None) if fresh else None
    watch = _Watch(ours, columns, per_input or bool(gains), keep_inputs, tuple(gains))
    reader.assess(data, lengths, progress, watch, None if growth is None else growth.after_batch)
    with collection.turn:
        curves = {} if growth is None else ordinary_tensors(growth.curves)()
        known = Assessed() if fresh else earlier if earlier.extremes is not None else None
        ours.assessed = watch.told(known, curves)


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
                builder = builder or TableBuilder(ours.collection, judged=True)
                ordinary_tensors(builder.add)(batch)
    if builder is None:
        raise InputError("the data gave no batch: nothing was judged")
    return builder.table()
