"""A table of inputs: what each is called, what the model said, and what each criterion has to say of it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.core.files import Place, atomic_write, ending_of, name_of


@dataclass(frozen=True, eq=False)
class InputTable:
    """Hold a row for each input, in the order in which they came.

    Columns are ``id``, ``token`` (its place in the input, where every token is one), ``key`` (of the input's content,
    where keys are kept), the metadata, ``label`` and ``prediction`` where known, ``excluded`` (why, and by which
    criterion; empty if by none), and by criterion ``NAME.first`` (how many cells or kinds the input was the first to
    show), ``NAME.score`` (its surprise) or ``NAME.gain``, and for LCC ``NAME.kind`` and ``NAME.alike``: inputs with the
    same word are of one kind in the last layer, and in every layer. ``None`` and NaN stand for nothing.

    >>> table = InputTable({"id": ("a.png", "b.png"), "NC(0.5).first": (3, 0)})
    >>> table["id"], list(table)[1]
    (('a.png', 'b.png'), {'id': 'b.png', 'NC(0.5).first': 0})
    """

    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns["id"])

    def __getitem__(self, column: str) -> Sequence[Any]:
        return self.columns[column]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as plain data."""
        for row in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, map(_plain, row), strict=True))

    def write(self, path: Place) -> None:
        """Write the table as CSV or as lines of JSON, as the name's ending says."""
        write = writer_for(path)
        with atomic_write(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            write(self, text)
            text.flush()
            text.detach()


def writer_for(path: Place) -> Callable[[InputTable, io.TextIOBase], None]:
    """Return what writes a table to a file of this name; refuse endings that nothing is known for."""
    ending = ending_of(path)
    if ending not in _WRITERS:
        raise InputError(f"a table of inputs as {name_of(path)!r}: expected a name that ends in .csv or .jsonl")
    return _WRITERS[ending]


def _write_csv(table: InputTable, file: io.TextIOBase) -> None:
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(table.columns)
    for row in table:
        rows.writerow(["" if value is None else value for value in row.values()])


def _write_lines(table: InputTable, file: io.TextIOBase) -> None:
    for row in table:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")


_WRITERS: dict[str, Callable[[InputTable, io.TextIOBase], None]] = {".csv": _write_csv, ".jsonl": _write_lines}


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
