"""What ``assess`` told beside values, and how two suites' worth of it are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neuralcov.coverage.sections.neurons import NeuronExtremes
from neuralcov.results.galleries import View, rows_to_show
from neuralcov.results.input_table import InputTable
from neuralcov.results.join import join_tables
from neuralcov.results.sections import GrowthCurve, SuiteMap
from neuralcov.results.slices import SliceTable

NOTED_BY_MERGE = (
    "states were merged: curves that follow a suite's order, the map, spreads of layers, and what each input was the "
    "first to show are of one suite and were dropped; measure all inputs in one run to have them"
)


@dataclass(frozen=True, eq=False)
class Assessed:
    """Hold what the last ``assess`` told beside values.

    Args:
        version: of the states that it was told of.
        slices: what slices cover.
        table: of the inputs, where it was asked for.
        growth: by criterion, the values noted on the way.
        extremes: of all neurons.
        spectra: by layer, the largest eigenvalues of the outputs' covariance, as shares of its trace.
        map: the suite beside training data.
        views: what some inputs look like, by their row in the table.
        nearest: rows that come nearest to what is uncovered, with what that is.
        notes: sentences for the report.
    """

    version: int = 0
    slices: tuple[SliceTable, ...] = ()
    table: InputTable | None = None
    growth: Mapping[str, GrowthCurve] = field(default_factory=dict)
    extremes: NeuronExtremes | None = None
    spectra: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    map: SuiteMap | None = None
    views: Mapping[int, View] = field(default_factory=dict)
    nearest: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def without_inputs(self) -> Assessed:
        """Return the same without anything that shows or names an input."""
        bare = None if self.extremes is None else replace(self.extremes, peaks=None)
        return replace(self, table=None, views={}, nearest={}, map=None, extremes=bare)

    @property
    def told(self) -> bool:
        """Whether there is anything beside the version."""
        return any((self.slices, self.table, self.growth, self.extremes, self.spectra, self.map, self.notes))


def join_assessed(ours: Assessed, theirs: Assessed, version: int) -> Assessed:
    """Return what is still true of two suites together, for the states of a version."""
    both = ours.extremes is not None and theirs.extremes is not None
    extremes = ours.extremes.joined(theirs.extremes) if both else None  # type: ignore[union-attr, arg-type]
    table, views = None, {}
    if ours.table is not None and theirs.table is not None:
        table, places = join_tables(ours.table, theirs.table)
        found = {places[row]: view for row, view in theirs.views.items()} | dict(ours.views)
        views = {row: found[row] for row in rows_to_show(table, {}) if row in found}
    notes = tuple(dict.fromkeys((*ours.notes, *theirs.notes, NOTED_BY_MERGE))) if ours.told or theirs.told else ()
    return Assessed(version, table=table, extremes=extremes, views=views, notes=notes)
