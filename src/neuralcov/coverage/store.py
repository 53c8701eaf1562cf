"""What goes into state files and saved calibrations, and how it comes back.

A file is read in this order: schema and content; the header's SHA-256; criteria by name and hyper-parameters; the form
of every tensor; and only then the tensors themselves, each with its SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import torch
from torch import Tensor

from neuralcov.core.container import CALIBRATION, STATE, Container, opened, save, write
from neuralcov.core.errors import NeuralcovError
from neuralcov.core.files import AnyPath, Place
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.memory import out_of_memory
from neuralcov.core.old_identity import old_identity
from neuralcov.core.old_names import from_schema_1, with_declared_names
from neuralcov.core.records import Record, flatten, stored_name
from neuralcov.core.registry import load_own, stored_class
from neuralcov.coverage.collection import AnyCriterion, States, plain_keys
from neuralcov.coverage.file_tensors import FileTensors
from neuralcov.coverage.provenance import checked_provenance
from neuralcov.coverage.sections import Assessed, TrainingMap, assessed_to_json, read_assessed
from neuralcov.coverage.seen import KeyRule, SeenInputs
from neuralcov.coverage.stored_criteria import StoredCriterion
from neuralcov.coverage.stored_inputs import inputs_to_json, read_inputs
from neuralcov.coverage.suite_counts import SuiteCounts
from neuralcov.results.references import ReferenceCurve
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.statistic import AnyStatistic

__all__ = [
    "AnyPath",
    "Place",
    "StoredCalibration",
    "StoredCoverage",
    "load_coverage",
    "load_calibration",
    "save_coverage",
    "save_calibration_file",
    "write_coverage",
]


@dataclass(frozen=True, eq=False)
class StoredCoverage:
    """Hold the content of a state file.

    Args:
        layout: the layers.
        modules: the names of the chosen modules, ``None`` for a coverage without a model.
        criteria: with what calibration taught them, short of traces.
        states: one for each.
        identities: by criterion, the id of its calibration.
        definitions: by criterion, the number of the definition it was measured under.
        seen: which inputs, by runs and sketch; ``None`` where a file does not tell.
        provenance: the model, preprocessing and the like, as plain data.
        id: of the file, once there is one.
        rows: which rows of each layer's output belong to which input, ``None`` where that was never found out.
        assessed: what ``assess`` told beside values.
        named: whether a file may name inputs that were excluded.
        training: what was counted of the training data.
        references: by criterion, what held-out training inputs show.
    """

    layout: Layout
    modules: tuple[str, ...] | None
    criteria: tuple[AnyCriterion, ...]
    states: States
    identities: Mapping[str, str | None]
    definitions: Mapping[str, int]
    seen: SeenInputs | None
    provenance: Mapping[str, Any]
    id: str | None = None
    rows: Mapping[str, Any] | None = None
    assessed: Assessed = field(default_factory=Assessed)
    named: bool = True
    training: SuiteCounts | None = None
    references: Mapping[str, ReferenceCurve] = field(default_factory=dict)

    @property
    def chosen(self) -> list[str]:
        """Return the modules to measure: those that were chosen, or all layers where the file does not tell."""
        return list(self.layout if self.modules is None else self.modules)


@dataclass(frozen=True, eq=False)
class StoredCalibration:
    """Hold the content of a calibration file; ``old_identity`` is there for one of schema 1."""

    calibration: Calibration
    provenance: Mapping[str, Any]
    old_identity: Callable[[Iterable[AnyStatistic]], str] | None = None
    training: SuiteCounts | None = None
    references: Mapping[str, ReferenceCurve] = field(default_factory=dict)
    map: TrainingMap | None = None


def save_coverage(path: Place, content: StoredCoverage) -> str:
    """Write a state file: states, and what calibration taught each criterion short of traces; return its id."""
    return save(path, STATE, *_taken_apart(content))


def write_coverage(file: BinaryIO, content: StoredCoverage) -> str:
    """Write the same to an open file."""
    return write(file, STATE, *_taken_apart(content))


def _taken_apart(content: StoredCoverage) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of a state file."""
    tensors: dict[str, Tensor] = {}
    entries = []
    for key, criterion, state in zip(plain_keys(content.criteria), content.criteria, content.states, strict=True):
        entries.append(
            {
                "name": stored_class(type(criterion)),
                "definition": content.definitions[criterion.name],
                "parameters": criterion.parameters,
                "calibration": content.identities[criterion.name],
                "learnt": flatten(criterion.for_state_file(), f"{key}.learnt", tensors, stored_name),
                "state": flatten(state, key, tensors, stored_name),
            }
        )
    assert content.seen is not None
    inputs = inputs_to_json(content.seen, tensors)
    if not content.named:
        inputs.pop("excluded", None)
    header = {
        "criteria": entries,
        "layout": content.layout.to_json(),
        "modules": content.modules,
        "inputs": inputs,
        "training": None if content.training is None else content.training.to_json(),
        "provenance": content.provenance,
        "rows": content.rows,
        **_stored_references(content.references),
        **({"results": results} if (results := assessed_to_json(content.assessed, tensors)) else {}),
    }
    return header, tensors


@ordinary_tensors
def load_coverage(source: Place | bytes, device: torch.device, rule: KeyRule | None = None) -> StoredCoverage:
    """Read a state file, or the bytes of one."""
    load_own()
    with opened(source, STATE) as file, _damage_told(file):
        header = file.header if file.schema > 1 else from_schema_1(file.header, Record.known)
        layout = Layout({str(name): width for name, width in header["layout"]}, device)
        entries = [StoredCriterion.of(entry, file) for entry in header["criteria"]]
        for entry in entries:
            entry.require_form(file, layout)
        read = FileTensors(file, lambda name: file.read(name).to(device))
        built = [entry.build(file, read, layout) for entry in entries]
        names = [criterion.name for criterion, _ in built]
        modules = header["modules"]
        return StoredCoverage(
            layout=layout,
            modules=None if modules is None else tuple(str(name) for name in modules),
            criteria=tuple(criterion for criterion, _ in built),
            states=tuple(state for _, state in built),
            identities={name: entry.calibration for name, entry in zip(names, entries, strict=True)},
            definitions={name: entry.definition for name, entry in zip(names, entries, strict=True)},
            seen=None if header["inputs"] is None else read_inputs(header["inputs"], file, rule),
            provenance=checked_provenance(header["provenance"]),
            id=file.id,
            rows=header.get("rows"),
            training=_training(header),
            references=_references(header),
            assessed=read_assessed(header.get("results", {}), file, layout),
        )


def save_calibration_file(
    path: Place,
    calibration: Calibration,
    provenance: Mapping[str, Any],
    training: SuiteCounts | None = None,
    references: Mapping[str, ReferenceCurve] | None = None,
    drawn: TrainingMap | None = None,
) -> str:
    """Write a calibration file; return its id."""
    tensors: dict[str, Tensor] = {}
    plain = calibration.to_json("calibration", tensors)
    counts = None if training is None else training.to_json()
    header = {"calibration": plain, "provenance": provenance, "training": counts}
    if drawn is not None:
        header["map"] = drawn.to_json(tensors)
    return save(path, CALIBRATION, {**header, **_stored_references(references or {})}, tensors)


def _training(header: Mapping[str, Any]) -> SuiteCounts | None:
    """Read what was counted of the training data, where a file tells."""
    counts = header.get("training")
    return None if counts is None else SuiteCounts.from_json(counts)


def _stored_references(references: Mapping[str, ReferenceCurve]) -> dict[str, Any]:
    """Return what a header says of held-out inputs: nothing where none were held out."""
    return {"references": {name: curve.to_json() for name, curve in references.items()}} if references else {}


def _references(header: Mapping[str, Any]) -> dict[str, ReferenceCurve]:
    return {str(name): ReferenceCurve.from_json(curve) for name, curve in header.get("references", {}).items()}


@ordinary_tensors
def load_calibration(path: Place, device: torch.device) -> StoredCalibration:
    """Read a calibration file. Traces beyond the memory that they may take stay on disk."""
    load_own()
    with opened(path, CALIBRATION) as file, _damage_told(file):
        raw = file.header["calibration" if file.schema > 1 else "reference"]
        stored = raw if file.schema > 1 else with_declared_names(raw, Record.known)
        if stored.get("record", "calibration") != "calibration":
            raise file.error(f"holds {stored['record']!r} where a calibration was expected")
        beyond = _beyond_budget(stored, file)
        read = FileTensors(file, lambda name: file.read(name, mapped=name in beyond))
        calibration = Calibration.from_json(stored, read, file.tensors if file.schema > 1 else None)
        old = None if file.schema > 1 else partial(_identity_of_schema_1, raw, dict(read.found))
        moved = calibration.to(device)
        for path_in_file, tensor in file.tensors.items():
            if tensor.sha256 is not None:
                moved.digests[path_in_file.removeprefix("calibration.")] = tensor.sha256
        told = file.header.get("map")
        drawn = None if told is None else TrainingMap.from_json(told, file, moved.layout())
        provenance = checked_provenance(file.header.get("provenance", {}))
        return StoredCalibration(moved, provenance, old, _training(file.header), _references(file.header), drawn)


def _identity_of_schema_1(raw: Any, tensors: Mapping[str, Tensor], learns: Iterable[AnyStatistic]) -> str:
    """Return what schema 1 told the calibration of statistics by, which it knew by other names."""
    return old_identity(raw, tensors, frozenset(statistic.label for statistic in learns))


def _beyond_budget(stored: Any, file: Container) -> frozenset[str]:
    """Find the blocks of traces that do not fit into the memory traces may take."""
    if isinstance(stored, list):
        return frozenset().union(*(_beyond_budget(item, file) for item in stored))
    if not isinstance(stored, dict):
        return frozenset()
    if stored.get("record") != "traces":
        return frozenset().union(*(_beyond_budget(item, file) for item in stored.values()))
    left, beyond = int(stored["fields"]["budget"]["value"]), set()
    for block in stored["fields"]["blocks"]:
        tensor = file.tensors[block["tensor"]]
        left -= tensor.end - tensor.start
        if left < 0:
            beyond.add(str(block["tensor"]))
    return frozenset(beyond)


@contextmanager
def _damage_told(file: Container) -> Iterator[None]:
    """Turn what a header lacks, in a block that reads it, into one sentence."""
    try:
        yield
    except NeuralcovError as error:
        if str(error).startswith(f"{file.name}: "):
            raise
        raise file.error(str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise file.error(f"the header is damaged ({error!r})") from error
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        first = next(iter(str(error).splitlines()), "")
        raise file.error(f"the header does not fit the tensors ({first})") from error
