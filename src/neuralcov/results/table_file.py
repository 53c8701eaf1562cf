"""Tables of inputs read back from the files that ``measure --per-input`` writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.files import Place, ending_of, name_of, read_text
from neuralcov.results.input_table import InputTable

_WHOLE = ("label", "prediction")
_WHOLE_ENDINGS = (".first",)
_NUMBER_ENDINGS = (".score", ".gain")


def read_table(path: Place) -> InputTable:
    """Read a table of inputs, ``.csv`` or ``.jsonl``. What is empty becomes ``None``."""
    place, ending = name_of(path), ending_of(path)
    if ending not in _READERS:
        raise InputError(f"{place}: expected a table of inputs, .csv or .jsonl, as measure --per-input writes it")
    try:
        columns = _READERS[ending](read_text(path))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InputError(f"{place}: there is no such file") from error
    except (ValueError, csv.Error) as error:
        raise InputError(f"{place}: no table of inputs ({error})") from error
    if "id" not in columns:
        raise InputError(f"{place}: no table of inputs, which has a column 'id'")
    return InputTable(columns)


def _read_csv(text: str) -> dict[str, Sequence[Any]]:
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    names = rows[0] if rows else []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise ValueError(f"line {number} has {counted(len(row), 'value')}, the first {len(names)}")
    return {name: [_value(name, row[i]) for row in rows[1:]] for i, name in enumerate(names)}


def _value(column: str, text: str) -> Any:
    if column == "excluded":
        return text
    if not text:
        return None
    if column in _WHOLE or column.endswith(_WHOLE_ENDINGS):
        return int(text)
    return float(text) if column.endswith(_NUMBER_ENDINGS) else text


def _read_lines(text: str) -> dict[str, Sequence[Any]]:
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    names = list(rows[0]) if rows and isinstance(rows[0], dict) else []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or list(row) != names:
            raise ValueError(f"line {number} has other columns than the first")
    return {name: [row[name] for row in rows] for name in names}


_READERS: dict[str, Callable[[str], dict[str, Sequence[Any]]]] = {".csv": _read_csv, ".jsonl": _read_lines}
