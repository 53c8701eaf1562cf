"""Select inputs to label within a budget: in the order of their rank, and no two that are nearly the same."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.rank.collecting import Settings, gather
from neuralcov.rank.learning import Labels, read_labels
from neuralcov.rank.queue import Queue
from neuralcov.rank.rank import queue_of
from neuralcov.rank.scorers import MOST_TRACES
from neuralcov.tap.inputs import Lengths


def select(
    coverage: Coverage,
    data: Iterable[Any],
    budget: int,
    *,
    training: Iterable[Any] | None = None,
    labels: Labels | None = None,
    classes: Sequence[str] = (),
    layer: str | None = None,
    traces: int = MOST_TRACES,
    states: bool = False,
    lengths: Lengths | None = None,
    work: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Queue:
    """Select inputs to label: as ``rank`` orders them, without near duplicates.

    Two inputs are near duplicates if they show the same kind of LCC in every layer. Where fewer inputs than the budget
    differ, fewer are selected, with a note.

    Args:
        coverage: of the model, calibrated with DSC and LCC among its criteria.
        data: a loader of the inputs to select from.
        budget: how many inputs to select.
        training: as for ``rank``, like the rest.
        labels: see there.
        classes: see there.
        layer: see there.
        traces: see there.
        states: see there.
        lengths: see there.
        work: see there.
        folder: see there.
        progress: see there.
    """
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise InputError(f"budget={budget!r}: expected a whole number of at least 1")
    known = None if labels is None else read_labels(labels)
    settings = Settings(
        every_score=labels is not None,
        kinds=True,
        training=training,
        layer=layer,
        traces=traces,
        states=states,
        lengths=lengths,
        work=work,
        progress=progress,
    )
    found = gather(coverage, data, settings)
    queue = queue_of(found, known, classes, folder)
    chosen, skipped = without_duplicates(queue.order, found.columns["kinds"], budget)
    notes = [*queue.notes]
    if skipped:
        were = agreeing(skipped, "was", "were")
        notes.append(f"{counted(skipped, 'near duplicate')} of selected inputs {were} passed over")
    if len(chosen) < budget:
        notes.append(
            f"{len(chosen)} of {counted(len(queue), 'input')} "
            f"{agreeing(len(chosen), 'differs', 'differ')} in kind, fewer than the budget of {budget}"
        )
    return replace(queue, order=chosen, notes=tuple(notes))


def without_duplicates(order: np.ndarray, keys: np.ndarray, budget: int) -> tuple[np.ndarray, int]:
    """Return the first inputs in order with a key of their own, up to the budget, and how many were passed over.

    >>> without_duplicates(np.array([2, 0, 1]), np.array([7, 5, 7]), 5)
    (array([2, 1]), 1)
    """
    seen: set[int] = set()
    chosen: list[int] = []
    skipped = 0
    for position in map(int, order):
        key = int(keys[position])
        if key in seen:
            skipped += 1
            continue
        seen.add(key)
        chosen.append(position)
        if len(chosen) == budget:
            break
    return np.array(chosen, dtype=order.dtype), skipped
