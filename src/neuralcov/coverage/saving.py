"""A coverage written to a file or to bytes, and states taken over from one."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from neuralcov.core.activations import statistics_device
from neuralcov.core.errors import CoverageWarning, MismatchError, StateFileError
from neuralcov.core.files import name_of
from neuralcov.coverage.belonging import require_same_criteria
from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.measurement import Learnt, Measurement
from neuralcov.coverage.ownership import Shared
from neuralcov.coverage.provenance import model_id, require_same_preprocessing, short
from neuralcov.coverage.seen import KeyRule
from neuralcov.coverage.store import Place, StoredCoverage, load_coverage, save_coverage, write_coverage
from neuralcov.results import SliceTable
from neuralcov.tap.known_rows import require_same_pool

# Bytes of results in a header.
_MOST_RESULTS = 1_000_000


def save(ours: Measurement, path: Place, *, end_run: bool, inputs: bool) -> None:
    """Write a state file; without ``inputs`` nothing in it shows or names one."""
    if end_run:
        ours.seen.end_run()
    with ours.collection.turn:
        save_coverage(path, _content(ours, inputs=inputs))


def to_bytes(ours: Measurement) -> bytes:
    """Return what a state file would hold."""
    require_layers(ours)
    ours.seen.end_run()
    file = io.BytesIO()
    with ours.collection.turn:
        write_coverage(file, _content(ours))
    return file.getvalue()


def require_layers(ours: Measurement, path: Place | None = None) -> None:
    """Refuse to write a coverage that has not seen its layers yet."""
    if ours.collection.layout is None:
        where = "" if path is None else f"{name_of(path)}: "
        raise StateFileError(f"{where}nothing to save, no batch was observed yet")


def _content(ours: Measurement, *, inputs: bool = True) -> StoredCoverage:
    """Gather what a file holds."""
    collection = ours.collection
    assert collection.layout is not None
    told = ours.last_assessed
    if not collection.empty and ours.tap is not None:
        ours.provenance.watch(empty=False, whole=True)
    return StoredCoverage(
        layout=collection.layout,
        modules=None if ours.tap is None else tuple(ours.tap.chosen),
        criteria=collection.criteria,
        states=collection.states,
        identities=ours.learnt_ids(),
        definitions=collection.definitions,
        seen=ours.seen,
        provenance=ours.describe(),
        rows=ours.rows,
        assessed=replace(told if inputs else told.without_inputs(), slices=_fitting(told.slices)),
        named=inputs,
        training=ours.learnt.training,
        references=ours.learnt.references,
    )


def _fitting(slices: tuple[SliceTable, ...]) -> tuple[SliceTable, ...]:
    """Return the tables of slices that a header has room for, and warn of those it has not."""
    kept, left = [], _MOST_RESULTS
    for table in slices:
        left -= len(json.dumps(table.to_json()))
        if left >= 0:
            kept.append(table)
    if len(kept) < len(slices):
        said = f"slices: tables of more than {_MOST_RESULTS:,} bytes are not saved; write them as JSON"
        warnings.warn(said, CoverageWarning, stacklevel=4)
    return tuple(kept)


def read(
    source: Place | bytes,
    name: str,
    device: torch.device,
    rule: KeyRule,
    criteria: Sequence[AnyCriterion] | None,
) -> StoredCoverage:
    """Read a state file or the bytes of one; refuse other criteria than those expected, if any are."""
    content = load_coverage(source, statistics_device(device), rule)
    if criteria is not None and [c.name for c in criteria] != [c.name for c in content.criteria]:
        held, wanted = (", ".join(c.name for c in some) for some in (content.criteria, criteria))
        raise MismatchError(f"{name} holds {held}, expected {wanted}")
    return content


def start_from(ours: Measurement, content: StoredCoverage, name: str) -> None:
    """Let a new coverage go on from the states of a file."""
    ours.learnt = Learnt.known_by(content.identities)
    ours.learnt.training, ours.learnt.references = content.training, content.references
    _take_states(ours, content, name)


def load_state(ours: Measurement, path: Place | bytes, *, same_run: bool) -> None:
    """Replace the states by those of a file, or of the bytes of one, of the same model, criteria and calibration."""
    name = "the bytes" if isinstance(path, bytes) else name_of(path)
    layout = ours.collection.layout
    content = load_coverage(path, statistics_device(ours.device) if layout is None else layout.device, ours.seen.rule)
    require_same_criteria(ours, tuple(c.name for c in content.criteria), content.identities, name)
    if layout is not None:
        layout.require_same(content.layout, name)
    _take_states(ours, content, name)
    if same_run:
        ours.seen.reopen_run()
    ours.warned.clear()


def _take_states(ours: Measurement, content: StoredCoverage, name: str) -> None:
    """Go on from the states of a file, or refuse those of another model or preprocessing."""
    told = content.provenance.get("model")
    if ours.tap is not None:
        content.layout.require_modules(ours.tap.widths(), name)
        identity = None if told is None else model_id(ours.tap.model)
        if told is not None and told["id"] != identity:
            raise MismatchError(
                f"{name} was measured on weights {short(told['id'])}, this model has {short(identity)}: load those "
                "weights, or load it without a model"
            )
        require_same_pool(ours.tap.known_rows.pool, content.rows, name)
        ours.tap.expect(content.layout)
        if content.rows is not None:
            ours.tap.known_rows.expect(content.rows)
    else:
        ours.loaded_rows = content.rows
    prepared = content.provenance.get("preprocessing")
    if ours.provenance.preprocessing is None:
        ours.provenance.preprocessing = prepared
    elif "preprocessing" in content.provenance:
        require_same_preprocessing(ours.provenance.preprocessing, prepared)
    collection = ours.collection
    collection.layout = content.layout
    collection.adopt(tuple(Shared(state) for state in content.states))
    collection.definitions = dict(content.definitions)
    collection.seen = content.seen or ours.seen.unknown(collection.inputs)
    ours.assessed = replace(content.assessed, version=collection.version)
    ours.provenance.loaded(content.provenance, content.id)
