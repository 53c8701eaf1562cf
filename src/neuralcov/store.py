"""What goes into state files and saved calibrations, and how it comes back."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuralcov.core import files
from neuralcov.core.criterion import State, criterion_class
from neuralcov.core.errors import NeuralcovError, StateFileError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.core.ledger import AnyCriterion, States
from neuralcov.core.records import flatten, unflatten
from neuralcov.core.reference import Reference

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class StoredCoverage:
    """The content of a state file.

    ``modules`` are the names of the chosen modules, ``None`` for a coverage without a model. ``rows`` say which rows of
    each layer's output belong to which input, ``None`` where that was never found out.
    """

    layout: Layout
    modules: tuple[str, ...] | None
    criteria: tuple[AnyCriterion, ...]
    states: States
    identities: Mapping[str, str | None]
    definitions: tuple[int, ...]
    rows: Mapping[str, Any] | None = None


def save_coverage(path: AnyPath, content: StoredCoverage) -> None:
    """Write a state file: states, and what calibration taught each criterion short of traces."""
    tensors: dict[str, Tensor] = {}
    entries = [
        {
            "class": type(criterion).__name__,
            "parameters": criterion.parameters,
            "definition": definition,
            "calibration": content.identities[criterion.name],
            "fitted": flatten(criterion.portable(), f"{index}.fitted", tensors),
            "state": flatten(state, f"{index}.state", tensors),
        }
        for index, (criterion, state, definition) in enumerate(
            zip(content.criteria, content.states, content.definitions, strict=True)
        )
    ]
    header: dict[str, Any] = {"layout": content.layout.to_json(), "modules": content.modules, "criteria": entries}
    if content.rows is not None:
        header["rows"] = content.rows
    files.write(path, "coverage", header, tensors)


@ordinary_tensors
def load_coverage(path: AnyPath, device: torch.device) -> StoredCoverage:
    """Read a state file."""
    header, mapped = files.read(path, "coverage")
    tensors = {name: tensor.to(device) for name, tensor in mapped.items()}
    try:
        loaded = [_loaded(path, entry, tensors) for entry in header["criteria"]]
        criteria = tuple(criterion for criterion, _ in loaded)
        modules = header["modules"]
        return StoredCoverage(
            layout=Layout(dict(header["layout"]), device),
            modules=None if modules is None else tuple(modules),
            criteria=criteria,
            states=tuple(state for _, state in loaded),
            identities={
                criterion.name: entry["calibration"]
                for criterion, entry in zip(criteria, header["criteria"], strict=True)
            },
            definitions=tuple(int(entry.get("definition", 1)) for entry in header["criteria"]),
            rows=header.get("rows"),
        )
    except NeuralcovError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StateFileError(f"{path}: the header is damaged ({error!r})") from error


def save_reference(path: AnyPath, reference: Reference) -> None:
    """Write a calibration file."""
    tensors: dict[str, Tensor] = {}
    files.write(path, "calibration", {"reference": flatten(reference, "reference", tensors)}, tensors)


@ordinary_tensors
def load_reference(path: AnyPath, device: torch.device) -> Reference:
    """Read a calibration file."""
    header, tensors = files.read(path, "calibration")
    try:
        reference = unflatten(header["reference"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise StateFileError(f"{path}: the header is damaged ({error!r})") from error
    if not isinstance(reference, Reference):
        raise StateFileError(f"{path}: holds a {type(reference).__name__} where a calibration was expected")
    return reference.to(device)


def _loaded(path: AnyPath, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[AnyCriterion, State]:
    """Build a criterion and its state; files of schema 1, which name no definition, are brought into today's form."""
    criterion, state = _criterion(path, entry, tensors), unflatten(entry["state"], tensors)
    if "definition" not in entry:
        fitted, state = criterion.upgrade(criterion.fitted, state)
        criterion = replace(criterion, fitted=fitted)
    return criterion, state


def _criterion(path: AnyPath, entry: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AnyCriterion:
    cls = criterion_class(str(entry["class"]))
    if cls is None:
        raise StateFileError(
            f"{path}: holds the criterion {entry['class']!r}, which is not known here; "
            "import the module that defines it"
        )
    parameters = {name: _thaw(value) for name, value in entry["parameters"].items()}
    return cls(**parameters, fitted=unflatten(entry["fitted"], tensors))


def _thaw(value: Any) -> Any:
    """JSON has no tuples; hyper-parameters have no lists."""
    return tuple(_thaw(item) for item in value) if isinstance(value, Sequence) and not isinstance(value, str) else value
