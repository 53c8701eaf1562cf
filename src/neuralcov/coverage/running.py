"""Run the model on every batch of a loader and hand on what it gave, for those who judge inputs and observe nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.core.input_names import Column, checked_columns, checked_ids
from neuralcov.core.shapes import Int
from neuralcov.coverage.batches import BatchReader
from neuralcov.tap import Batch
from neuralcov.tap.inputs import Lengths, to_device
from neuralcov.tap.members import Members, as_arguments
from neuralcov.tap.outputs import TOKENS
from neuralcov.tap.signatures import form_of


@dataclass(frozen=True, eq=False)
class Run:
    """One batch of a loader, with what the model gave for it.

    Args:
        size: the number of inputs.
        keys: their content keys, where they have some.
        ids: a name for each, where they have names.
        metadata: column → a value for each.
        activations: what the layers gave; ``None`` for a batch that was skipped.
        output: what the model gave; ``None`` for a batch that was skipped.
    """

    size: int
    keys: Int[Tensor, "size 2"] | None
    ids: Column | None
    metadata: Mapping[str, Column]
    activations: Activations | None = None
    output: Any = None


def run_all(
    reader: BatchReader,
    data: Any,
    *,
    lengths: Lengths | None,
    progress: bool | None,
    title: str,
    known: Callable[[Run], int] | None,
    relevance: bool,
) -> Iterator[Run]:
    """Yield every batch of a loader after running the model on it, as ``Coverage.runs`` says."""
    if reader.tap().known_rows.pool == TOKENS:
        raise InputError(
            "inputs are ranked, selected and kept whole, but pool='tokens' makes an input of every token: measure with "
            "pool='mean', 'last' or 'max'"
        )
    seen, skip = 0, None if known is None else -1
    with reader.first(), reader.open():
        for batch in reader.inputs(data, lengths, title, progress):
            if skip is not None and 0 < seen < skip:
                unrun = _unrun(reader, batch)
                if seen + unrun.size <= skip:
                    seen += unrun.size
                    yield unrun
                    continue
            found, output = reader.run_batch(batch, relevance=relevance)
            reader.watch()
            run = Run(found.size, found.keys, found.ids, found.metadata, found, output)
            if skip == -1 and known is not None:
                skip = known(run)
            seen += run.size
            yield run


def _unrun(reader: BatchReader, batch: Batch) -> Run:
    """Return what is known of a batch without running the model on it."""
    tap = reader.tap()
    inputs = as_arguments(tap.model, to_device(batch.inputs, tap.device))
    members = Members.of(inputs, tap.batch_axis, batch.batch, form_of(tap.model))
    size = members.size
    return Run(size, members.keys(), checked_ids(batch.ids, size), checked_columns(batch.metadata, size))
