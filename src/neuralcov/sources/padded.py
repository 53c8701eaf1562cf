"""Measuring texts whose padding is known: each batch is observed with its lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.coverage import Coverage
from neuralcov.progress import tracked
from neuralcov.sources.npz import PaddedBatch


def assess(coverage: Coverage, loader: Iterable[Any]) -> None:
    """Update a coverage with every batch, padding left out where a batch says what it is."""
    if not _is_padded(loader):
        coverage.assess(loader)
        return
    with coverage.tap():
        for inputs, labels, lengths in _parts(tracked(loader, "assessing")):
            coverage.update(inputs, labels, lengths=lengths)


def calibrate_on(coverage: Coverage, loader: Iterable[Any]) -> None:
    """Teach a coverage from every batch, padding left out where a batch says what it is."""
    if not _is_padded(loader):
        coverage.calibrate(loader)
        return
    with coverage.tap():
        coverage.calibrate(activations=_activations(coverage, loader))


def parse_padding(text: str) -> int | None:
    """Read a token, or ``none``.

    >>> parse_padding("1"), parse_padding("none")
    (1, None)
    """
    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"--padding {text!r}: expected a token's number, or none") from error


def _is_padded(loader: Iterable[Any]) -> bool:
    return isinstance(loader, list) and bool(loader) and isinstance(loader[0], PaddedBatch)


def _parts(batches: Iterable[PaddedBatch]) -> Iterator[tuple[Any, Any, Any]]:
    for batch in batches:
        inputs, labels, *_ = chain(batch, (None,))
        yield inputs, labels, batch.lengths


def _activations(coverage: Coverage, loader: Iterable[Any]) -> Iterator[Activations]:
    for inputs, labels, lengths in _parts(tracked(loader, "calibrating")):
        yield coverage.run(inputs, labels, lengths=lengths, predictions=False)[0]
