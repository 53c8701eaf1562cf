"""Names of inputs: an id for each, and columns of metadata. They only name; what an input is, its content says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError

Plain: TypeAlias = "str | int | float | bool | None"
Column: TypeAlias = Sequence[Plain]

CLASS = "class"
"""The column that every input has: its label where known, else what the model predicts."""
TAKEN = ("id", "label", "prediction", "excluded", CLASS)
"""Columns that a table of inputs has already."""


class PickedColumn(Sequence[Plain]):
    """Hold some rows of a column that a tensor on a device names; the device is asked when somebody reads them."""

    def __init__(self, whole: Column, rows: Tensor) -> None:
        self._whole, self._rows = whole, rows
        self._found: tuple[Plain, ...] | None = None

    @property
    def _values(self) -> tuple[Plain, ...]:
        if self._found is None:
            self._found = pick_now(self._whole, self._rows)
        return self._found

    @overload
    def __getitem__(self, index: int) -> Plain: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Plain, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> Plain | tuple[Plain, ...]:
        return self._values[index]

    @override
    def __len__(self) -> int:
        return len(self._values)


def pick(column: Column, rows: slice | Tensor) -> Column:
    """Return some rows of a column, by slice, mask or index; nothing waits for a device."""
    if isinstance(rows, slice):
        return column[rows]
    return pick_now(column, rows) if rows.device.type == "cpu" else PickedColumn(column, rows)


def pick_now(column: Column, rows: Tensor) -> tuple[Plain, ...]:
    """Return some rows of a column, by mask or index."""
    chosen = rows.tolist()
    if rows.dtype == torch.bool:
        return tuple(value for value, taken in zip(column, chosen, strict=True) if taken)
    return tuple(column[index] for index in chosen)


def pick_columns(columns: Mapping[str, Column], rows: slice | Tensor) -> Mapping[str, Column]:
    """Return some rows of every column."""
    return {name: pick(column, rows) for name, column in columns.items()} if columns else columns


def join(columns: Iterable[Column]) -> tuple[Plain, ...]:
    """Return columns of several batches as one."""
    return tuple(value for column in columns for value in column)


def join_columns(batches: Sequence[tuple[int, Mapping[str, Column]]]) -> dict[str, Column]:
    """Return the metadata of several batches, each with its size, as one; ``None`` where a batch lacks a column."""
    names = dict.fromkeys(name for _, columns in batches for name in columns)
    return {name: join(columns.get(name, (None,) * size) for size, columns in batches) for name in names}


def checked_ids(ids: Any, size: int) -> tuple[Plain, ...] | None:
    """Return ids as plain values, one per input; refuse any other number of them."""
    return None if ids is None else _checked(ids, size, "id")


def checked_columns(metadata: Mapping[str, Any] | None, size: int) -> dict[str, Column]:
    """Return columns of metadata as plain values, one per input; refuse any other number, and names that are taken."""
    found: dict[str, Column] = {}
    for name, values in (metadata or {}).items():
        if name in TAKEN:
            raise InputError(f"metadata of the name {name!r}: tables of inputs have such a column already; rename it")
        found[str(name)] = _checked(values, size, "value", f" of {name!r}")
    return found


def _checked(values: Any, size: int, noun: str, of: str = "") -> tuple[Plain, ...]:
    if isinstance(values, (Tensor, np.ndarray)):
        values = values.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(f"{noun}s{of} of type {type(values).__name__}: expected a list with one for each input")
    plain = tuple(value if type(value) in (str, int) else _plain(value) for value in values)
    if len(plain) != size:
        raise InputError(f"{counted(len(plain), noun)}{of} for {counted(size, 'input')}: expected one for each")
    return plain


def _plain(value: Any) -> Plain:
    """Return a value as tables and files can hold it; what is no text and no number is shown as text."""
    if isinstance(value, (Tensor, np.generic, np.ndarray)):
        value = value.tolist()
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
