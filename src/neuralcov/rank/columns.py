"""What is known of every input while a ranking is made: a few numbers each, and what a run can go on from.

Numbers lie in arrays of at most ``ROWS`` rows, so that adding some copies nothing; joining goes column by column.
With a work file every part that was finished is on disk. A run that goes on reads the inputs again, but does not run
the model on those whose numbers are there; their content keys tell that they are the same.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from neuralcov.core.errors import InputError, MismatchError, StateFileError
from neuralcov.core.files import append_line, local_path, write_text
from neuralcov.core.input_names import Plain
from neuralcov.coverage.running import Run

ROWS = 1 << 14
_CONTENT = "neuralcov rank"
_SCHEMA = 1
_PATHS = ("path", "paths")


class Names:
    """The ids of inputs, and paths where metadata hold some; inputs without ids go by their position."""

    def __init__(self) -> None:
        self.count = 0
        self._ids: list[Plain] | None = None
        self._paths: list[Plain] | None = None

    def add(self, run: Run) -> None:
        """Add those of a batch."""
        if run.ids is not None:
            self._ids = list(range(self.count)) if self._ids is None else self._ids
            self._ids.extend(run.ids)
        elif self._ids is not None:
            self._ids.extend(range(self.count, self.count + run.size))
        column = next((run.metadata[name] for name in _PATHS if name in run.metadata), None)
        if column is not None or self._paths is not None:
            self._paths = [None] * self.count if self._paths is None else self._paths
            self._paths.extend([None] * run.size if column is None else column)
        self.count += run.size

    def id(self, position: int) -> Plain:
        """Return the id of an input."""
        return position if self._ids is None else self._ids[position]

    def path(self, position: int) -> Plain:
        """Return the path of an input; ``None`` if it has none."""
        return None if self._paths is None else self._paths[position]


class Columns:
    """Numbers of every input, by column.

    Args:
        kinds: column → NumPy's name of its type, such as ``"f8"``.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds = dict(kinds)
        self.count = 0
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in kinds}
        self._filled = ROWS

    def add(self, rows: Mapping[str, np.ndarray]) -> None:
        """Add those of some inputs."""
        count, start = len(next(iter(rows.values()))), 0
        while start < count:
            if self._filled == ROWS:
                for name, kind in self.kinds.items():
                    self._parts[name].append(np.empty(ROWS, dtype=kind))
                self._filled = 0
            taken = min(count - start, ROWS - self._filled)
            for name, values in rows.items():
                self._parts[name][-1][self._filled : self._filled + taken] = values[start : start + taken]
            self._filled, start = self._filled + taken, start + taken
        self.count += count

    def joined(self) -> dict[str, np.ndarray]:
        """Return every column in one piece; this object is empty afterwards."""
        found = {}
        for name, kind in self.kinds.items():
            whole = np.empty(self.count, dtype=kind)
            # Backwards, each part let go of as soon as it is copied.
            parts = self._parts.pop(name)
            while parts:
                part = parts.pop()
                start = len(parts) * ROWS
                whole[start : start + ROWS] = part[: self.count - start]
            found[name] = whole
        return found


class WorkFile:
    """Keep the numbers of finished batches on disk, to go on from.

    Lines of JSON: the first says what belongs to it, each further one holds the numbers of some inputs with a checksum,
    and the sum of the content keys of all inputs so far. A line that a kill cut off is dropped.

    Args:
        path: of the file.
        subject: what the numbers depend on, as plain data; another one is refused.
        kinds: as for ``Columns``.
    """

    def __init__(self, path: str | os.PathLike[str], subject: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
        self.path = local_path(path)
        self._kinds = dict(kinds)
        self._head = {_CONTENT: _SCHEMA, "subject": dict(subject), "columns": self._kinds}
        self.marks: dict[int, tuple[int, int] | None] = {}
        """Number of inputs → the sum of their content keys, where parts end."""

    def load(self, columns: Columns) -> int:
        """Add the numbers that the file holds, and make it ready for more; return of how many inputs."""
        lines = self.path.read_text(encoding="utf-8").split("\n") if self.path.exists() else []
        if len(lines) > 1:
            self._check(lines[0])
        good = [json.dumps(self._head)]
        # What is behind the last line break was cut off.
        for line in lines[1:-1]:
            part = _read(line, self._kinds)
            if part is None:
                break
            columns.add(part[0])
            self.marks[columns.count] = part[1]
            good.append(line)
        write_text(self.path, "\n".join(good) + "\n")
        return columns.count

    def _check(self, line: str) -> None:
        try:
            head = json.loads(line)
        except ValueError:
            head = None
        if not isinstance(head, dict) or _CONTENT not in head:
            raise StateFileError(f"{self.path}: not a work file of neuralcov: give another name, or remove it")
        if head != self._head:
            there, here = (_difference(head, self._head), _difference(self._head, head))
            raise MismatchError(
                f"{self.path}: the run there is another one ({there}, here {here}): give another name, or remove it"
            )

    def add(self, rows: Mapping[str, np.ndarray], so_far: int, keys: tuple[int, int] | None) -> None:
        """Write the numbers of some inputs, with the sum of the keys of all ``so_far``."""
        self.marks[so_far] = keys
        content = b"".join(np.ascontiguousarray(rows[name], dtype=kind).tobytes() for name, kind in self._kinds.items())
        packed = zlib.compress(content, 1)
        line = {
            "rows": len(next(iter(rows.values()))),
            "keys": keys,
            "sum": zlib.crc32(packed),
            "data": base64.b64encode(packed).decode(),
        }
        append_line(self.path, json.dumps(line))


class KeySum:
    """Sum the content keys of inputs, and compare the sums with those of an earlier run where its parts ended."""

    def __init__(self, work: WorkFile | None) -> None:
        self._work = work
        self._count = 0
        self._sum: np.ndarray | None = np.zeros(2, dtype=np.int64)

    @property
    def value(self) -> tuple[int, int] | None:
        """The sum so far; ``None`` where inputs have no keys."""
        return None if self._sum is None else (int(self._sum[0]), int(self._sum[1]))

    def add(self, keys: Tensor | None, size: int, done: int) -> None:
        """Add the keys of a batch, and refuse one whose inputs are not those of the first ``done`` before."""
        if self._work is None or self._sum is None or keys is None:
            self._sum, self._count = None if keys is None else self._sum, self._count + size
            return
        words, start = keys.cpu().numpy(), self._count
        if start >= done:
            self._sum = self._sum + words.sum(0)
            self._count += size
            return
        for end in [mark for mark in sorted(self._work.marks) if start < mark <= min(done, start + size)]:
            so_far = self._sum + words[: end - start].sum(0)
            there = self._work.marks[end]
            if there is not None and there != (int(so_far[0]), int(so_far[1])):
                raise MismatchError(
                    f"{self._work.path}: among the first {end} inputs are others than in the run there: give the same "
                    "data in the same order, or another name"
                )
        self._sum = self._sum + words.sum(0)
        self._count += size


def _read(line: str, kinds: Mapping[str, str]) -> tuple[dict[str, np.ndarray], tuple[int, int] | None] | None:
    """Return the numbers of a line with the sum of keys; ``None`` for a damaged one."""
    try:
        entry = json.loads(line)
        packed = base64.b64decode(entry["data"])
        if zlib.crc32(packed) != entry["sum"]:
            return None
        content, rows, start = zlib.decompress(packed), int(entry["rows"]), 0
        found = {}
        for name, kind in kinds.items():
            found[name] = np.frombuffer(content, dtype=kind, count=rows, offset=start)
            start += found[name].nbytes
        keys = entry["keys"]
        return found, None if keys is None else (int(keys[0]), int(keys[1]))
    except (ValueError, KeyError, TypeError, zlib.error):
        return None


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Show the first part of plain data that another one has differently."""
    for key, value in one.items():
        there = other.get(key)
        if value != there:
            if isinstance(value, Mapping) and isinstance(there, Mapping):
                return _difference(value, there)
            return f"{key}: {value}"
    return "less"


def require_inputs(count: int) -> None:
    """Refuse data that gave no input."""
    if not count:
        raise InputError("the data gave no batch: there is nothing to rank")
