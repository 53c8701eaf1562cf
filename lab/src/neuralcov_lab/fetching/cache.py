"""Know the folder that fetched data sets and weights are kept in, and whether each is there in full."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from neuralcov.core.files import atomic_write
from neuralcov_lab.errors import DataError

VARIABLE = "NEURALCOV_DATA"
_RECORD = "complete.json"


def cache_folder() -> Path:
    """Return ``NEURALCOV_DATA`` if set, else ``neuralcov`` in the user's cache directory."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(user_cache_dir("neuralcov", appauthor=False))


def require(name: str, folder: Path | None = None) -> Path:
    """Return where a data set lies: the folder the user names, or its part of the cache if it is there in full."""
    if folder is not None:
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise DataError(f"{name}: there is no folder {place}")
        return place
    place = cache_folder() / name
    if not is_complete(place):
        state = "only part of it is" if place.is_dir() else "it is not"
        raise DataError(
            f"{name}: {state} in the cache {cache_folder()}; run `neuralcov data get {name}`, or name a folder with "
            "your own copy"
        )
    return place


def is_complete(place: Path) -> bool:
    """Return whether a record says that everything arrived, and every file in it still has its size."""
    record = read_record(place)
    if record is None:
        return False
    try:
        return all(_has_size(place / name, entry["bytes"]) for name, entry in record["files"].items())
    except (KeyError, TypeError, ValueError):
        return False  # a damaged record: fetching writes a new one


def read_record(place: Path) -> dict[str, Any] | None:
    """Return what was fetched into a folder, or ``None`` where that was never finished."""
    try:
        record = json.loads((place / _RECORD).read_text())
        return record if isinstance(record["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_record(place: Path, content: dict[str, Any]) -> None:
    """Note that a folder is complete, as the last step of filling it."""
    with atomic_write(place / _RECORD) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


def remove_record(place: Path) -> None:
    """Note that a folder is not complete any more, as the first step of filling it anew."""
    (place / _RECORD).unlink(missing_ok=True)


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
