"""Checking what a file says of a record against the form it must have, before any of it is read.

The form is a record on the meta device, which takes no memory, together with the empty one that it grows from:

- a tensor has the form's dtype and number of axes, and each of its lengths but for those that are 0 in the form;
- where the form has float32, which most networks give, it may be float64;
- where the empty record has ``None``, or the record declares a field optional, a file may have that or what the form
  has;
- where it has an empty tuple, a file may have any number of what the form has one of;
- numbers and text equal those of the form, but for fields that the record declares free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.container import StoredTensor
from neuralcov.core.errors import StateFileError
from neuralcov.core.records import Record, record_name


def require_form(structure: Any, form: Any, empty: Any, tensors: Mapping[str, StoredTensor], place: str) -> None:
    """Refuse a tree of a file that does not have the form, naming the first difference.

    Args:
        structure: the tree as the header has it.
        form: what must be there.
        empty: what is there when nothing was observed or learnt.
        tensors: what the header says of the tensors.
        place: where the tree stands, for messages.
    """
    if isinstance(structure, dict) and structure.get("value", ...) is None and empty is None:
        return
    if isinstance(form, Tensor):
        _require_tensor(structure, form, tensors, place)
    elif isinstance(form, Record):
        _require_record(structure, form, empty if isinstance(empty, Record) else form, tensors, place)
    elif isinstance(form, tuple):
        _require_tuple(structure, form, empty if isinstance(empty, tuple) else form, tensors, place)
    elif not isinstance(structure, dict) or structure.get("value", ...) != form:
        raise StateFileError(f"{place} is {_shown(structure)}, expected {form!r}")


def _require_tensor(structure: Any, form: Tensor, tensors: Mapping[str, StoredTensor], place: str) -> None:
    path = structure.get("tensor") if isinstance(structure, dict) else None
    if path is None:
        raise StateFileError(f"{place} is {_shown(structure)}, expected a tensor")
    if path not in tensors:
        raise StateFileError(f"the tensor {path!r} is missing from the file")
    found = tensors[path]
    if found.dtype != form.dtype and (found.dtype, form.dtype) != (torch.float64, torch.float32):
        kinds = [str(dtype).removeprefix("torch.") for dtype in (found.dtype, form.dtype)]
        raise StateFileError(f"{path} holds {kinds[0]}, expected {kinds[1]}")
    same = all(wanted in (0, length) for length, wanted in zip(found.shape, form.shape, strict=False))
    if len(found.shape) != form.dim() or not same:
        wanted = ", ".join("any" if length == 0 else str(length) for length in form.shape)
        raise StateFileError(f"{path} has shape {found.shape}, the layers allow ({wanted})")


def _require_record(
    structure: Any, form: Record, empty: Record, tensors: Mapping[str, StoredTensor], place: str
) -> None:
    wanted = record_name(type(form))
    found = structure.get("record") if isinstance(structure, dict) else None
    if found != wanted:
        raise StateFileError(f"{place} is {_shown(structure)}, expected {wanted!r}")
    fields: Mapping[str, Any] = structure["fields"]
    parts = {part.name: part for part in dataclasses.fields(form)}  # type: ignore[arg-type]
    unknown = next((name for name in fields if name not in parts), None)
    if unknown is not None:
        raise StateFileError(f"{place} has a field {unknown!r}, which {wanted!r} does not have")
    for name, part in parts.items():
        nothing = None if name in form.optional_fields else getattr(empty, name)
        if name not in fields:
            # What is left out has its default, which is None for a part that some criteria do not keep.
            if part.default is dataclasses.MISSING or (part.default is None and nothing is not None):
                raise StateFileError(f"{place} lacks the field {name!r}")
        elif name in form.free_fields:
            _require_kind(fields[name], getattr(form, name), f"{place}.{name}")
        else:
            require_form(fields[name], getattr(form, name), nothing, tensors, f"{place}.{name}")


def _require_tuple(
    structure: Any, form: tuple[Any, ...], empty: tuple[Any, ...], tensors: Mapping[str, StoredTensor], place: str
) -> None:
    if not isinstance(structure, list):
        raise StateFileError(f"{place} is {_shown(structure)}, expected several")
    many = len(form) == 1 and not empty
    if not many and len(structure) != len(form):
        raise StateFileError(f"{place} has {len(structure)} parts, expected {len(form)}")
    for index, item in enumerate(structure):
        ours, theirs = (form[0], form[0]) if many else (form[index], empty[index])
        require_form(item, ours, theirs, tensors, f"{place}.{index}")


def _require_kind(structure: Any, like: Any, place: str) -> None:
    """Refuse a number, text or tuple of these where something else is expected."""
    if isinstance(like, tuple):
        if not isinstance(structure, list) or not all(_plain(item) for item in structure):
            raise StateFileError(f"{place} is {_shown(structure)}, expected several numbers or texts")
        return
    if not isinstance(structure, dict) or type(structure.get("value", ...)) is not type(like):
        raise StateFileError(f"{place} is {_shown(structure)}, expected a {type(like).__name__}")


def _plain(structure: Any) -> bool:
    """Return whether a part of a file is a number, a text, or several of these."""
    if isinstance(structure, list):
        return all(_plain(item) for item in structure)
    return isinstance(structure, dict) and isinstance(structure.get("value"), (str, int, float))


def _shown(structure: Any) -> str:
    """Say in a word what a file has in a place."""
    if isinstance(structure, list):
        return f"{len(structure)} parts"
    if isinstance(structure, dict):
        for kind in ("record", "tensor", "value"):
            if kind in structure:
                return repr(structure[kind])
    return "nothing that can be read"
