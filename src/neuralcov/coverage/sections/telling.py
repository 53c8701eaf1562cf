"""What ``assess`` noted and what states tell by themselves, as the sections of a report."""

from __future__ import annotations

from typing import Any

from neuralcov.core.criterion import ALL_PROMISES
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.sections.growth import rarefied_growth
from neuralcov.coverage.sections.neurons import layer_neurons
from neuralcov.results.galleries import fewer_inputs, make_galleries


def told_sections(ours: Measurement, *, alone: bool) -> dict[str, Any]:
    """Return sections by the names that results have for them.

    Args:
        ours: what was measured.
        alone: whether the suite was not measured on top of other inputs.
    """
    told, collection = ours.last_assessed, ours.collection
    found: dict[str, Any] = {"neurons": layer_neurons(collection, told.extremes, told.spectra), "map": told.map}
    if alone:
        curves = {**told.growth, **rarefied_growth(collection)}
        found["growth"] = {name: curves[name] for name in collection.names if name in curves}
    if told.table is not None:
        found["galleries"] = make_galleries(told.table, told.views, told.nearest)
        # What came before the table's inputs showed cells too, of which nobody knows who was first.
        if len(told.table) == collection.inputs:
            ticked = [criterion.name for criterion in collection.criteria if criterion.promises >= ALL_PROMISES]
            found["fewer"] = fewer_inputs(told.table, ticked)
    return found
