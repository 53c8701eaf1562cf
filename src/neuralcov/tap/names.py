"""Names of inputs among the keys of what a loader yields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from neuralcov.tap.signatures import Form

ID_KEYS = ("ids", "id", "path", "paths")
"""The first of these that a mapping has names its inputs."""
_LABELS = "labels"


def split_names(
    item: Mapping[str, Any], form: Form, metadata: Collection[str] = ()
) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Take a mapping apart into keyword inputs, ids and columns of metadata; labels are in none of them.

    Ids lie under ``ids``, ``id``, ``path`` or ``paths``, the first that is there; the others of these are metadata, as
    are the keys that ``metadata`` names, and lists of texts that the model has no argument for. What the model has an
    argument for goes to the model, named or not.

    Args:
        item: what a loader yields.
        form: what the model can be called with.
        metadata: keys that hold metadata.
    """
    inputs: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    ids = None
    first = next((key for key in ID_KEYS if key in item and key not in form.keywords and key not in metadata), None)
    for key, value in item.items():
        if key == _LABELS:
            continue
        if key == first:
            ids = value
        elif key in metadata or (key not in form.keywords and (key in ID_KEYS or _is_text(key, value, form))):
            columns[key] = value
        if key in form.keywords or (key not in columns and key != first):
            inputs[key] = value
    return inputs, ids, columns


def _is_text(key: str, value: Any, form: Form) -> bool:
    """Return whether a value is a list of texts that the model could not be given."""
    if form.takes(key) or not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(part, str) for part in value)
