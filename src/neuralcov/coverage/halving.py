"""Run a model on a batch, or on halves of it where memory does not suffice for the whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch

from neuralcov.core.counted import counted
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.input_names import pick, pick_columns
from neuralcov.core.memory import out_of_memory
from neuralcov.tap import Batch, Tap
from neuralcov.tap.members import Members, as_arguments
from neuralcov.tap.signatures import form_of

T = TypeVar("T")


class Halving:
    """Halve batches that are too large for the memory there is, and remember how large they may be.

    Only runs of the model are tried again: what a criterion was about to overwrite when memory gave out is lost. The
    parts are batches of their own, so that criteria whose value depends on batching have the value of the smaller
    batches.
    """

    def __init__(self) -> None:
        self.most: int | None = None

    def run(self, tap: Tap, batch: Batch, once: Callable[[Batch], T]) -> Iterator[T]:
        """Yield what ``once`` gives for a batch, or for the parts of it that it has memory for, in order."""
        waiting = [batch] if self.most is None else _cut(tap, batch, self.most)[::-1]
        while waiting:
            part = waiting.pop()
            try:
                found = once(part)
            except Exception as error:
                if not out_of_memory(error):
                    raise
                size = _members(tap, part).size
                if size < 2:
                    raise
            else:
                yield found
                continue
            # Out here the error is gone, and with it what its frames held.
            self._remember(size, tap.device)
            assert self.most is not None
            waiting = [piece for other in (*waiting, part) for piece in _cut(tap, other, self.most)[::-1]]

    def _remember(self, size: int, device: torch.device) -> None:
        self.most = (size + 1) // 2
        if device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(
            f"out of memory with {counted(size, 'input')} at once: went on with batches of {self.most}; "
            f"smaller batches from the "
            "start save the attempts, and criteria whose value depends on batching have that of the smaller ones",
            CoverageWarning,
            stacklevel=5,
        )


def _members(tap: Tap, batch: Batch) -> Members:
    return Members.of(as_arguments(tap.model, batch.inputs), tap.batch_axis, batch.batch, form_of(tap.model))


def _cut(tap: Tap, batch: Batch, most: int) -> list[Batch]:
    """Cut a batch into parts of at most so many inputs."""
    members = _members(tap, batch)
    if members.size <= most:
        return [batch]
    return [_part(batch, members, range(members.size)[start : start + most]) for start in range(0, members.size, most)]


def _part(batch: Batch, members: Members, rows: range) -> Batch:
    some = slice(rows.start, rows.stop)
    return replace(
        batch,
        inputs=members.take(rows),
        labels=_rows(batch.labels, some, members.size),
        lengths=_rows(batch.lengths, some, members.size),
        batch=len(rows) if isinstance(batch.batch, int) else batch.batch,
        ids=None if batch.ids is None else pick(batch.ids, some),
        metadata=pick_columns(batch.metadata, some),
    )


def _rows(values: Any, rows: slice, size: int) -> Any:
    """Return the rows of one value per input; anything else serves all of them."""
    return values[rows] if hasattr(values, "__len__") and len(values) == size else values
