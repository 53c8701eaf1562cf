"""States taken over from elsewhere: a snapshot to go back to, another coverage to merge in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.core.layout import Layout
from neuralcov.coverage.belonging import (
    require_other_inputs,
    require_same_criteria,
    require_same_definitions,
    require_same_model,
)
from neuralcov.coverage.collection import SharedStates
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.provenance import Origin, Weights, model_id, require_same_preprocessing
from neuralcov.coverage.sections import join_assessed
from neuralcov.coverage.seen import SeenInputs
from neuralcov.tap.known_rows import require_same_rows

OVERLAPS = ("refuse", "allow", "repeat")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Keep the states of a coverage at one moment, to go back to."""

    names: tuple[str, ...]
    identities: Mapping[str, str | None]
    layout: Layout | None
    states: SharedStates | None
    definitions: Mapping[str, int]
    seen: SeenInputs
    origin: Origin
    model: nn.Module | None
    preprocessing: Any


def take_snapshot(ours: Measurement) -> Snapshot:
    """Return the present states; nothing overwrites them from here on."""
    collection = ours.collection
    with collection.turn:
        return Snapshot(
            collection.names,
            ours.learnt_ids(),
            collection.layout,
            collection.share(),
            dict(collection.definitions),
            ours.seen.copy(),
            ours.provenance.states,
            ours.provenance.model,
            ours.provenance.preprocessing,
        )


def restore(ours: Measurement, snapshot: Snapshot) -> None:
    """Go back to a snapshot, or refuse one of another model, calibration or the like."""
    if not isinstance(snapshot, Snapshot):
        raise InputError(f"a {type(snapshot).__name__} is no snapshot: expected what snapshot() gave")
    collection, provenance = ours.collection, ours.provenance
    require_same_criteria(ours, snapshot.names, snapshot.identities, "the snapshot")
    if collection.layout is not None and snapshot.layout is not None:
        collection.layout.require_same(snapshot.layout, "the snapshot")
    if snapshot.states is not None:
        if not collection.empty:
            require_same_definitions(ours, snapshot.definitions, "the snapshot")
        if snapshot.model is not provenance.model:
            theirs = snapshot.origin.id or (None if snapshot.model is None else model_id(snapshot.model))
            require_same_model(ours, theirs, "the snapshot")
        require_same_preprocessing(provenance.preprocessing, snapshot.preprocessing)
    with collection.turn:
        collection.adopt(snapshot.states)
        collection.definitions = dict(snapshot.definitions)
        collection.seen = snapshot.seen.copy()
        provenance.states = snapshot.origin


def merge(ours: Measurement, other: Measurement, overlap: str) -> None:
    """Take in what another has observed, or refuse what does not belong together."""
    if overlap not in OVERLAPS:
        raise InputError(f"overlap={overlap!r}: expected {', '.join(map(repr, OVERLAPS[:-1]))} or {OVERLAPS[-1]!r}")
    collection, theirs = ours.collection, other.collection
    require_same_criteria(ours, theirs.names, other.learnt_ids(), "the other coverage", other)
    if theirs.layout is None or theirs.empty:
        return
    if collection.layout is not None:
        collection.layout.require_same(theirs.layout, "the other coverage")
    first = collection.empty
    if not first:
        require_same_definitions(ours, theirs.definitions, "the other")
    model, preprocessing = other.provenance.measured_on(empty=False), other.provenance.preprocessing
    if not (first and ours.tap is None):
        require_same_model(ours, None if model is None else str(model["id"]), "the other")
        require_same_preprocessing(ours.provenance.preprocessing, preprocessing)
    require_same_rows(ours.rows, other.rows, "the other coverage")
    require_other_inputs(ours, other.seen, overlap)
    told = ours.last_assessed, other.last_assessed
    collection.merge(theirs)
    ours.seen.merge(other.seen)
    if first:
        ours.provenance.preprocessing = preprocessing
        weights = None if ours.provenance.model is None else Weights(ours.provenance.model)
        ours.provenance.states = Origin(model=model, weights=weights, known=model is not None, parts=0)
    ours.provenance.merged(other.provenance)
    ours.assessed = replace(told[1], version=collection.version) if first else join_assessed(*told, collection.version)
    if not first and any(one.slices for one in told):
        # States of slices are not kept, so that theirs cannot be merged.
        warnings.warn("slices: merging drops what slices cover; assess again for all", CoverageWarning, stacklevel=3)


def lacking(field: Measurement, suite: Measurement) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return how often the field showed each kind that a suite lacks; refuse what does not belong together."""
    ours, theirs = field.collection, suite.collection
    require_same_criteria(field, theirs.names, suite.learnt_ids(), "the suite", suite)
    if ours.layout is None or theirs.layout is None:
        return {}
    ours.layout.require_same(theirs.layout, "the suite")
    require_same_definitions(field, theirs.definitions, "the suite")
    model = suite.provenance.measured_on(empty=theirs.empty)
    require_same_model(field, None if model is None else str(model["id"]), "the suite")
    found = {}
    with ours.turn:
        for criterion, mine, other in zip(ours.criteria, ours.states, theirs.states, strict=True):
            counts = criterion.lacking(mine, other)
            if counts is not None:
                found[criterion.name] = tuple(tuple(some.tolist()) for some in counts)
    return found
