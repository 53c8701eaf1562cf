"""Frozen records of tensors and numbers, and the one walk that stores, moves and copies them all.

A ``Record`` is a frozen dataclass whose fields are tensors, numbers, strings, ``None``, other
records, or tuples of these. Because every state is one, no criterion writes its own input and output.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from neuralcov.core.errors import DeclarationError, StateFileError
from neuralcov.core.old_names import SCHEMA_1
from neuralcov.core.registry import load_own

T = TypeVar("T")


class Record:
    """Be the base of everything that is stored. Subclasses are frozen dataclasses.

    ``class Patterns(State, name="patterns")`` declares the name under which files keep it, so that the class may move;
    outside this package the name has a prefix, ``"acme.rarity"``. One without a name cannot be saved. ``free`` names
    fields whose number or text follows from the data, so that no template can tell it; ``resources`` those that say
    where or how fast work is done, and have no part in what the record is; ``optional`` those that may be ``None``,
    whatever the template has.
    """

    known: ClassVar[dict[str, type[Record]]] = {}
    declared: ClassVar[str | None] = None
    free_fields: ClassVar[frozenset[str]] = frozenset()
    resource_fields: ClassVar[frozenset[str]] = frozenset()
    optional_fields: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        free: Sequence[str] = (),
        resources: Sequence[str] = (),
        optional: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.declared = name
        cls.free_fields = cls.free_fields | {*free, *resources}
        cls.resource_fields = cls.resource_fields | set(resources)
        cls.optional_fields = cls.optional_fields | set(optional)
        if name is not None:
            require_declarable(cls, name, Record.known, "record")
            Record.known[name] = cls

    def compact(self) -> Self:
        """Drop parts that exist only for speed; files store the result."""
        return self


def require_declarable(cls: type, name: str, known: Mapping[str, type], what: str) -> None:
    """Refuse a name that another of the known classes has, or that does not tell whose it is."""
    ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]
    if not ours and not all(name.partition(".")):
        raise DeclarationError(
            f"{cls.__qualname__}: the {what} name {name!r} needs a prefix of its package, for example "
            f"{cls.__module__.partition('.')[0] + '.' + name!r}"
        )
    if ours and "." in name and name not in SCHEMA_1:
        raise DeclarationError(f"{cls.__qualname__}: the {what} name {name!r} has a dot, which marks other packages")
    other = known.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise DeclarationError(
            f"two {what}s are called {name!r}: {other.__qualname__} of {other.__module__} and {cls.__qualname__} of "
            f"{cls.__module__}; give one of them another name"
        )


def record_name(cls: type[Record]) -> str:
    """Return the declared name of a record class, or for one without, which cannot be saved, where it is defined."""
    return cls.declared or f"{cls.__module__}:{cls.__qualname__}"


def stored_name(cls: type[Record]) -> str:
    """Return the name under which a record class stands in files; refuse a class that has none."""
    if cls.declared is None:
        raise StateFileError(
            f"{cls.__qualname__} of {cls.__module__} cannot be saved: declare a name for files, "
            f'class {cls.__qualname__}(..., name="package.name")'
        )
    return cls.declared


def _fields(record: Record) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}  # type: ignore[arg-type]


def map_tensors(function: Callable[[Tensor], Tensor], tree: T) -> T:
    """Return the same tree with ``function`` applied to every tensor."""
    result: Any = tree
    if isinstance(tree, Tensor):
        result = function(tree)
    elif isinstance(tree, Record):
        result = type(tree)(**{k: map_tensors(function, v) for k, v in _fields(tree).items()})
    elif isinstance(tree, tuple):
        result = tuple(map_tensors(function, item) for item in tree)
    return result  # type: ignore[no-any-return]


def zip_tensors(function: Callable[[Tensor, Tensor], Tensor], a: T, b: T) -> T:
    """Return the tree of ``function`` of every two tensors of two trees of one form; the rest is that of the first."""
    result: Any = a
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        result = function(a, b)
    elif isinstance(a, Record) and isinstance(b, Record):
        theirs = _fields(b)
        result = type(a)(**{k: zip_tensors(function, v, theirs[k]) for k, v in _fields(a).items()})
    elif isinstance(a, tuple) and isinstance(b, tuple):
        result = tuple(zip_tensors(function, x, y) for x, y in zip(a, b, strict=True))
    return result  # type: ignore[no-any-return]


def move(tree: T, device: torch.device | str) -> T:
    """Return the same tree with every tensor on ``device``."""
    return map_tensors(lambda tensor: tensor.to(device), tree)


def flatten(
    tree: Any, prefix: str, tensors: dict[str, Tensor], name_of: Callable[[type[Record]], str] = record_name
) -> Any:
    """Put every tensor of ``tree`` into ``tensors`` by its path; return the rest as JSON.

    A tensor that occurs twice is stored once. ``name_of`` names the records.
    """
    paths = {id(tensor): path for path, tensor in tensors.items()}

    def walk(tree: Any, prefix: str) -> Any:
        if isinstance(tree, Tensor):
            path = paths.setdefault(id(tree), prefix)
            tensors[path] = tree
            return {"tensor": path}
        if isinstance(tree, Record):
            parts = {k: walk(v, f"{prefix}.{k}") for k, v in _fields(tree.compact()).items()}
            return {"record": name_of(type(tree)), "fields": parts}
        if isinstance(tree, tuple):
            return [walk(item, f"{prefix}.{i}") for i, item in enumerate(tree)]
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return {"value": tree}
        raise TypeError(f"{prefix}: a record cannot hold a {type(tree).__name__}")

    return walk(tree, prefix)


def unflatten(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Rebuild what ``flatten`` took apart. Only registered record classes are built."""
    if isinstance(structure, list):
        return tuple(unflatten(item, tensors) for item in structure)
    if "tensor" in structure:
        if structure["tensor"] not in tensors:
            raise StateFileError(f"the tensor {structure['tensor']!r} is missing from the file")
        return tensors[structure["tensor"]]
    if "record" in structure:
        if structure["record"] not in Record.known:
            load_own()
        cls = Record.known.get(structure["record"])
        if cls is None:
            raise StateFileError(
                f"the file holds a {structure['record']!r}, which is not known here: import the module that defines it"
            )
        return cls(**{k: unflatten(v, tensors) for k, v in structure["fields"].items()})
    return structure["value"]


def identity_of(parts: Mapping[str, Any], digest: Callable[[str, Tensor], str]) -> str:
    """Return the SHA-256 of trees by their paths: structure, numbers, and of every tensor its form and ``digest``.

    Resources are left out.
    """

    def walk(tree: Any, path: str) -> Any:
        if isinstance(tree, Tensor):
            return [str(tree.dtype), list(tree.shape), digest(path, tree)]
        if isinstance(tree, Record):
            parts = {name: part for name, part in _fields(tree).items() if name not in tree.resource_fields}
            return [record_name(type(tree)), {name: walk(part, f"{path}.{name}") for name, part in parts.items()}]
        if isinstance(tree, tuple):
            return [walk(item, f"{path}.{i}") for i, item in enumerate(tree)]
        return {"value": tree}

    content = [[path.partition(".")[0], walk(tree, path)] for path, tree in parts.items()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of a tree: its structure, and the type, shape and bytes of every tensor."""
    tensors: dict[str, Tensor] = {}
    return fingerprint_of(flatten(tree, "", tensors), tensors)


def fingerprint_of(structure: Any, tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a tree that was taken apart."""
    digest = hashlib.sha256(json.dumps(structure, sort_keys=True).encode())
    for path, tensor in tensors.items():
        digest.update(f"{path}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
