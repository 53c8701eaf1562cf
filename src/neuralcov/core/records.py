"""Frozen records of tensors and numbers, and the one walk that stores, moves and copies them all.

A :class:`Record` is a frozen dataclass whose fields are tensors, numbers, strings, ``None``, other
records, or tuples of these. Because every state is one, no criterion writes its own input and output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from neuralcov.core.errors import StateFileError

T = TypeVar("T")


class Record:
    """Base of everything that is stored. Subclasses are frozen dataclasses; defining one registers it.

    ``class Patterns(State, name="patterns")`` declares the name under which files keep it, so that the class may move.
    """

    known: ClassVar[dict[str, type[Record]]] = {}
    declared: ClassVar[str | None] = None

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.declared = name
        Record.known[record_name(cls)] = cls

    def settled(self) -> Self:
        """What is stored of it: all of it, but for what is there for the sake of speed alone."""
        return self


def record_name(cls: type[Record]) -> str:
    """The name under which a record class stands in files."""
    return cls.declared or f"{cls.__module__}:{cls.__qualname__}"


def _fields(record: Record) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}  # type: ignore[arg-type]


def map_tensors(function: Callable[[Tensor], Tensor], tree: T) -> T:
    """The same tree with ``function`` applied to every tensor."""
    result: Any = tree
    if isinstance(tree, Tensor):
        result = function(tree)
    elif isinstance(tree, Record):
        result = type(tree)(**{k: map_tensors(function, v) for k, v in _fields(tree).items()})
    elif isinstance(tree, tuple):
        result = tuple(map_tensors(function, item) for item in tree)
    return result  # type: ignore[no-any-return]


def move(tree: T, device: torch.device | str) -> T:
    """The same tree with every tensor on ``device``."""
    return map_tensors(lambda tensor: tensor.to(device), tree)


def flatten(tree: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """Put every tensor of ``tree`` into ``tensors`` by its path; return the rest as JSON.

    A tensor that occurs twice is stored once.
    """
    if isinstance(tree, Tensor):
        for path, stored in tensors.items():
            if stored is tree:
                return {"tensor": path}
        tensors[prefix] = tree
        return {"tensor": prefix}
    if isinstance(tree, Record):
        parts = {k: flatten(v, f"{prefix}.{k}", tensors) for k, v in _fields(tree.settled()).items()}
        return {"record": record_name(type(tree)), "fields": parts}
    if isinstance(tree, tuple):
        return [flatten(item, f"{prefix}.{i}", tensors) for i, item in enumerate(tree)]
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    raise TypeError(f"{prefix}: a record cannot hold a {type(tree).__name__}")


def unflatten(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild what :func:`flatten` took apart. Only registered record classes are built."""
    if isinstance(structure, list):
        return tuple(unflatten(item, tensors) for item in structure)
    if "tensor" in structure:
        if structure["tensor"] not in tensors:
            raise StateFileError(f"the tensor {structure['tensor']!r} is missing from the file")
        return tensors[structure["tensor"]]
    if "record" in structure:
        cls = Record.known.get(structure["record"])
        if cls is None:
            raise StateFileError(
                f"the file holds a {structure['record']!r}, which is not known here: import the module that defines it"
            )
        return cls(**{k: unflatten(v, tensors) for k, v in structure["fields"].items()})
    return structure["value"]


def fingerprint(tree: Any) -> str:
    """SHA-256 of a tree: its structure, and the type, shape and bytes of every tensor."""
    tensors: dict[str, Tensor] = {}
    digest = hashlib.sha256(json.dumps(flatten(tree, "", tensors), sort_keys=True).encode())
    for path, tensor in tensors.items():
        digest.update(f"{path}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
