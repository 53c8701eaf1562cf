"""The identity that schema 1 gave a calibration, so that what was calibrated then is recognised today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from neuralcov.core.old_names import SCHEMA_1
from neuralcov.core.records import Record, fingerprint_of, flatten, record_name

_OLD_NAMES = {name: old for old, name in SCHEMA_1.items()}
_ACCUMULATORS = ("ranges", "moments", "sample", "traces", "paths")


def old_fingerprint(tree: Any) -> str:
    """Return the SHA-256 that schema 1 would give a tree, records under the names they had then."""

    def name_of(cls: type[Record]) -> str:
        return _OLD_NAMES.get(record_name(cls), record_name(cls))

    tensors: dict[str, Tensor] = {}
    return fingerprint_of(flatten(tree, "", tensors, name_of), tensors)


def old_identity(reference: Mapping[str, Any], tensors: Mapping[str, Tensor], learns: frozenset[str]) -> str:
    """Return the identity of a calibration as its file of schema 1 has it, whatever became of its records since.

    Args:
        reference: the tree in the file's header, untouched.
        tensors: those it names.
        learns: what the criterion in question learns from.
    """
    fields = reference["fields"]
    names = [name for kind in _ACCUMULATORS for name in sorted(learns) if name.partition("(")[0] == kind]
    extra = fields.get("held_out", {"value": None}) if "moments" in learns else {"value": None}
    tree = [fields["names"], fields["widths"], [_part(fields, name) for name in names], extra]
    moved: dict[str, Tensor] = {}
    return fingerprint_of(_moved(tree, "", tensors, {}, moved), moved)


def _part(fields: Mapping[str, Any], name: str) -> Any:
    if name.partition("(")[0] != "paths":
        return fields[name]
    found = fields["paths"] if isinstance(fields["paths"], list) else []
    return next((part for part in found if part["fields"]["name"]["value"] == name), {"value": None})


def _moved(
    tree: Any, prefix: str, tensors: Mapping[str, Tensor], places: dict[str, str], moved: dict[str, Tensor]
) -> Any:
    """Return the tree with its tensors under the paths they have when it stands at ``prefix``."""
    if isinstance(tree, list):
        return [_moved(item, f"{prefix}.{i}", tensors, places, moved) for i, item in enumerate(tree)]
    if "tensor" in tree:
        path = places.setdefault(tree["tensor"], prefix)
        moved.setdefault(path, tensors[tree["tensor"]])
        return {"tensor": path}
    if "record" in tree:
        parts = tree["fields"].items()
        return {
            "record": tree["record"],
            "fields": {name: _moved(part, f"{prefix}.{name}", tensors, places, moved) for name, part in parts},
        }
    return tree
