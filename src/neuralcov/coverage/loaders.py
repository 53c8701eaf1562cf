"""Tell loaders from batches, and show a bar while one is consumed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from neuralcov.tap import Batch

T = TypeVar("T")


def is_loader(inputs: Any) -> bool:
    """Return whether something is no batch but yields batches: a loader, an iterator, or a list of pairs or batches."""
    if isinstance(inputs, (Tensor, Mapping, tuple, str, Batch, np.ndarray)) or not isinstance(inputs, Iterable):
        return False
    # A list of tensors, or of mappings, is the inputs of a model that takes lists.
    return not isinstance(inputs, list) or (bool(inputs) and isinstance(inputs[0], (tuple, Batch)))


def tracked(items: Iterable[T], title: str, show: bool | None = None) -> Iterator[T]:
    """Yield the same items and show a bar while they are consumed. ``show=None``: only in a terminal."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    total = len(items) if isinstance(items, Sized) else None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)
