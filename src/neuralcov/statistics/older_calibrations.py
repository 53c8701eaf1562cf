"""Calibrations as files held them when there was a fixed list of statistics, and the plain data they are today.

Only the header is turned round: tensors keep the paths they have in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def as_plain_data(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the calibration of a header in today's form."""
    if "fields" not in stored:
        return stored
    fields = stored["fields"]
    return {
        "names": _values(fields["names"]),
        "widths": _values(fields["widths"]),
        "seen": fields["seen"]["value"],
        "excluded": fields["left_out"]["value"] if "left_out" in fields else 0,
        "statistics": list(_entries(fields)),
    }


def _entries(fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the statistics that are there."""
    for field, name in (("ranges", "ranges"), ("moments", "moments"), ("sample", "sample"), ("traces", "traces")):
        if _there(fields, field):
            names = _values(fields[field]["fields"]["names"]) if name == "traces" else None
            yield _entry(name, {} if names is None else {"layers": names}, fields[field])
    for part in fields["paths"] if _there(fields, "paths") else ():
        # Called paths(0.7).
        yield _entry("paths", {"alpha": float(part["fields"]["name"]["value"][len("paths(") : -1])}, part)
    for part in fields["folds"] if _there(fields, "folds") else ():
        yield _entry("folds", {"count": len(part["fields"]["moments"])}, part)
    for field, name in (("held_out", "moments"), ("held_out_sample", "sample")):
        if _there(fields, field):
            yield _entry(name, {}, fields[field], held_out=True)


def _entry(name: str, settings: dict[str, Any], gathered: Any, *, held_out: bool = False) -> dict[str, Any]:
    return {"name": name, "settings": settings, "held_out": held_out, "gathered": gathered}


def _there(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields and fields[name] != {"value": None}


def _values(items: Any) -> list[Any]:
    return [item["value"] for item in items]
