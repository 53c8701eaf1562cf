"""Tables of two suites joined by input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuralcov.results.input_table import InputTable

# What depends on the inputs that came before, and is not true of two suites together.
_OF_ORDER = (".first", ".gain")


def join_tables(first: InputTable, second: InputTable) -> tuple[InputTable, Mapping[int, int]]:
    """Return one table of both suites, and where the second's rows are in it.

    Rows with the same content key are one input, which stays once; without keys every row is an input of its own, since
    ids only name. Columns that depend on what came before are dropped.
    """
    names = [
        name
        for name in dict.fromkeys((*first.columns, *second.columns))
        if not name.endswith(_OF_ORDER) and not (name == "key" and "key" not in first.columns)
    ]
    places: dict[int, int] = {}
    added: list[int] = []
    known = _places(first.columns.get("key") if "key" in second.columns else None)
    keys = second.columns.get("key") if known else None
    for row in range(len(second)):
        key = None if keys is None else keys[row]
        if key is not None and key in known:
            places[row] = known[key]
            continue
        places[row] = len(first) + len(added)
        added.append(row)
    columns = {
        name: [*_plain_column(first, name, range(len(first))), *_plain_column(second, name, added)] for name in names
    }
    return InputTable(columns), places


def _places(keys: Sequence[Any] | None) -> dict[Any, int]:
    return {} if keys is None else {key: row for row, key in reversed(list(enumerate(keys))) if key is not None}


def _plain_column(table: InputTable, name: str, rows: Sequence[int]) -> list[Any]:
    if name not in table.columns:
        return ["" if name == "excluded" else None] * len(rows)
    values = (table.columns[name][row] for row in rows)
    return [value.item() if hasattr(value, "item") else value for value in values]
