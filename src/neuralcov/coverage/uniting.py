"""One coverage from several of different layers that saw the same inputs: the stages of a pipeline, parts of a model.

A criterion whose layers do not know of each other has the value of one process that holds all layers, to the bit.
Those that look at several layers of an input together are refused: what they need was never in one place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Self

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError, MismatchError
from neuralcov.core.layout import Layout
from neuralcov.core.records import fingerprint, move
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.belonging import require_same_definitions, require_same_model
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.data import CoverageData
from neuralcov.coverage.measurement import Learnt, Measurement
from neuralcov.coverage.ownership import Shared
from neuralcov.coverage.provenance import Origin, Provenance, require_same_preprocessing
from neuralcov.coverage.seen import KeyRule, SeenInputs
from neuralcov.tap.known_rows import require_same_pool

OVER = ("layers", "stages")


class UnitingCoverage(CoverageData):
    """Put together coverages of different layers."""

    _reader: BatchReader

    @classmethod
    def united(cls, parts: Iterable[CoverageData], *, over: str = "layers") -> Self:
        """Return one coverage, without a model, of the layers of several that observed the same inputs.

        It has the values of one process that measured all these layers. Criteria that look at several layers of an
        input together (TKNP, SS, LSC, DSC, MDSC, NPC, LCC) are refused.

        Args:
            parts: coverages of the same criteria and of different layers, in the order of the layers; they stay as
                they are.
            over: ``"layers"`` of one model, whose inputs are told by their keys to be the same; or ``"stages"`` of a
                pipeline, each of which has the outputs of the one before for inputs: only their number is compared.
        """
        if over not in OVER:
            raise InputError(f"over={over!r}: expected {' or '.join(map(repr, OVER))}")
        every = [part._measurement for part in parts]
        if not every:
            raise InputError("united([]): give at least one coverage")
        return cls._holding(reduce(lambda a, b: united(a, b, over), every[1:], every[0].fork()))

    @classmethod
    def _without_model(
        cls, criteria: Sequence[AnyCriterion], preprocessing: Any, rule: KeyRule, memory: str | int | None = None
    ) -> Self:
        return cls._holding(Measurement(CriterionCollection(criteria, SeenInputs(rule), memory), None, preprocessing))

    @classmethod
    def _holding(cls, measurement: Measurement) -> Self:
        coverage = cls.__new__(cls)
        CoverageData.__init__(coverage, measurement)
        coverage._reader = BatchReader(measurement)
        return coverage


def united(a: Measurement, b: Measurement, over: str) -> Measurement:
    """Return the measurement of the layers of both, those of ``b`` behind."""
    ours, theirs = a.collection, b.collection
    layout = _joined_layout(a, b)
    if ours.names != theirs.names:
        raise MismatchError(f"criteria differ: one part has {', '.join(ours.names)}, another {', '.join(theirs.names)}")
    require_same_definitions(a, theirs.definitions, "another part")
    require_same_pool("mean" if a.rows is None else str(a.rows.get("pool", "mean")), b.rows, "another part")
    alike = _same_inputs(a.seen, b.seen)
    if over == "layers":
        if not alike:
            raise MismatchError(
                f"{_described(a.seen)} here and {_described(b.seen)} there are not known to be the same inputs: "
                "measure all layers on the same ones, with keys. Of the stages of a pipeline, whose inputs are the "
                'outputs of the stage before, only the number is compared: pass over="stages" (--over stages)'
            )
        theirs_model = b.provenance.measured_on(empty=False)
        require_same_model(a, None if theirs_model is None else str(theirs_model["id"]), "another part")
        require_same_preprocessing(a.provenance.preprocessing, b.provenance.preprocessing)
    criteria, states = [], []
    shared = zip(ours.share() or (), theirs.share() or (), strict=True)
    for one, other, (x, y) in zip(ours.criteria, theirs.criteria, shared, strict=True):
        _require_same_counts(one.name, x.state.counts.tolist(), y.state.counts.tolist())
        found = one.joined(other, x.state, move(y.state, layout.device), alike=alike)
        if found is None:
            raise MismatchError(
                f"{one.name} looks at several layers of an input together, which were never in one place: measure it "
                "in a process that holds all layers, or leave it out"
            )
        criteria.append(found[0])
        states.append(Shared(found[1]))
    whole = Measurement(CriterionCollection(criteria, a.seen.copy()), None, a.provenance.preprocessing)
    whole.collection.layout = layout
    whole.collection.adopt(tuple(states))
    whole.collection.definitions = dict(ours.definitions)
    whole.learnt = Learnt.known_by({c.name: None if c.learnt is None else fingerprint(c.learnt) for c in criteria})
    # What the last layers lead to is what the model decided.
    whole.seen.counts, whole.learnt.training = b.seen.counts.copy(), b.learnt.training
    whole.loaded_rows = _joined_rows(a.rows, b.rows)
    _note_origin(whole.provenance, a.provenance, b.provenance)
    return whole


def _joined_layout(a: Measurement, b: Measurement) -> Layout:
    for part in (a, b):
        if part.collection.empty:
            raise MismatchError("one part has observed nothing: every part needs the same inputs")
    ours, theirs = a.collection.layout, b.collection.layout
    assert ours is not None
    assert theirs is not None
    both = [name for name in ours if name in theirs]
    if both:
        raise MismatchError(
            f"layer {both[0]!r} is in two parts: parts to be united have different layers, of other names"
        )
    return Layout({**ours.widths, **theirs.widths}, ours.device)


def _same_inputs(a: SeenInputs, b: SeenInputs) -> bool:
    """Return whether both are known to have observed the same inputs."""
    known = a.comparable(b) and all(run.id is not None for run in (*a.runs, *b.runs))
    return known and _sums(a) == _sums(b)


def _sums(seen: SeenInputs) -> tuple[int, tuple[int, int]]:
    """Return the number of inputs and the sum of their keys, however they were cut into runs."""
    words = [(int(run.id[:16], 16), int(run.id[16:], 16)) for run in seen.runs if run.id is not None]
    first, second = (sum(word[place] for word in words) % (1 << 64) for place in (0, 1))
    return seen.inputs, (first, second)


def _described(seen: SeenInputs) -> str:
    return f"{counted(seen.inputs, 'input')} with {'no' if seen.mark == 'none' else seen.mark.partition(' ')[0]} keys"


def _require_same_counts(name: str, ours: list[int], theirs: list[int]) -> None:
    if ours == theirs:
        return
    said = [f"{counted(sum(counts), 'input')}, of which {sum(counts[1:]):,} were excluded" for counts in (ours, theirs)]
    raise MismatchError(
        f"{name}: one part has {said[0]}, another {said[1]}: parts to be united need the same inputs, and what one "
        "layer excludes no other may count"
    )


def _joined_rows(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the order of the rows of all layers, as files keep it."""
    if a is None or b is None:
        return None if a is None and b is None else dict(a or b or {})
    return {**a, **{part: {**a[part], **b[part]} for part in ("orders", "left_out", "axes")}}


def _note_origin(whole: Provenance, a: Provenance, b: Provenance) -> None:
    """Note the models that the layers are of."""
    files = [part.states.file for part in (a, b) if part.states.file is not None]
    parents = tuple(dict.fromkeys((*a.states.parents, *b.states.parents, *files)))
    model = _joined_model(a.measured_on(empty=False), b.measured_on(empty=False))
    parts = max(a.states.parts, b.states.parts)
    whole.states = Origin(model=model, known=model is not None, parents=parents, parts=parts)
    taught = _joined_model(a.calibrated_on(), b.calibrated_on())
    if a.calibration is not None or b.calibration is not None:
        whole.calibration = Origin(model=taught, known=taught is not None, moving=a.moving or b.moving)


def _joined_model(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what files say of a model in parts: a number of its own, from those of the parts in order."""
    if a is None or b is None or a["id"] == b["id"]:
        return a if a is not None and b is not None else None
    stages = [stage for model in (a, b) for stage in model.get("stages", [model["id"]])]
    identity = hashlib.sha256(json.dumps(stages).encode()).hexdigest()
    classes = " + ".join(str(model.get("class", "?")) for model in (a, b))
    parameters = sum(int(model.get("parameters", 0)) for model in (a, b))
    return {"id": identity, "class": classes, "parameters": parameters, "stages": stages}
