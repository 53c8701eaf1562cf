"""Show the first inputs of a queue on a page, with what they look like where the data are at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.coverage.sections.views import ViewStore
from neuralcov.report.queue import QueuedInput, render_queue
from neuralcov.results.galleries import TEXT_COLUMNS, View
from neuralcov.tap.inputs import Batch, Unpack, unpack_batch

SHOWN = 64


def views_of(
    data: Iterable[Any], positions: Iterable[int], *, preprocessing: Any = None, unpack: Unpack | None = None
) -> dict[int, View]:
    """Return what some inputs of a loader look like, by position; it is read as far as the last of them.

    Args:
        data: the loader that was ranked.
        positions: of the inputs.
        preprocessing: what was done to pixels, undone where it is a mapping with ``mean`` and ``std``.
        unpack: as for ``Coverage``.
    """
    wanted = set(positions)
    last = max(wanted, default=-1)
    store, first = ViewStore(preprocessing), 0
    texts: dict[int, str] = {}
    for item in data:
        batch = unpack_batch(item, unpack)
        size = _size(batch)
        own = [position for position in wanted if first <= position < first + size]
        if own:
            store.add(batch.inputs, first, size, lambda: wanted)
            column = next((batch.metadata[name] for name in TEXT_COLUMNS if name in batch.metadata), None)
            if column is not None:
                texts |= {position: str(column[position - first]) for position in own}
        first += size
        if first > last:
            break
    found = store.views(wanted)
    return {row: View(found.get(row, View()).picture, texts.get(row, found.get(row, View()).text)) for row in wanted}


def page_of(
    title: str,
    total: int,
    rows: Iterable[tuple[int, int, str, str, float]],
    views: Mapping[int, View],
    said: Callable[[int], str],
    notes: Iterable[str],
) -> str:
    """Return the page of the first inputs.

    Args:
        title: in words.
        total: how many inputs the queue has.
        rows: of the first ones: position in the data, rank, name, reason, score.
        views: by position, what inputs look like.
        said: from a position to what the model says.
        notes: to show beside.
    """
    shown = [
        QueuedInput(
            rank,
            name,
            why,
            score,
            said(position),
            views[position].picture if position in views else None,
            (views[position].text or "") if position in views else "",
        )
        for position, rank, name, why, score in rows
    ]
    return render_queue(title, total, shown, tuple(notes))


def _size(batch: Batch) -> int:
    """Return how many inputs a batch holds."""
    if isinstance(batch.batch, int):
        return batch.batch
    inputs = batch.inputs
    if isinstance(batch.batch, str) and isinstance(inputs, Mapping):
        return len(inputs[batch.batch])
    parts = (
        inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    )
    sizes = [len(part) for part in parts if isinstance(part, Tensor) or hasattr(part, "shape")]
    if not sizes:
        raise InputError("the data hold no tensor to count inputs by; give page() the data with unpack=")
    return sizes[0]
