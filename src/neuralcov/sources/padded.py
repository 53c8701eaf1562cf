"""Measuring texts whose padding is known: each batch is observed with its lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.coverage import Coverage
from neuralcov.sources.npz import PaddedBatch


def assess(coverage: Coverage, loader: Iterable[Any]) -> None:
    """Update a coverage with every batch, padding left out where a batch says what it is."""
    coverage.assess(loader, lengths=_lengths(loader))


def calibrate_on(coverage: Coverage, loader: Iterable[Any]) -> None:
    """Teach a coverage from every batch, padding left out where a batch says what it is."""
    coverage.calibrate(loader, lengths=_lengths(loader))


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


def _lengths(loader: Iterable[Any]) -> Callable[[PaddedBatch], Any] | None:
    padded = isinstance(loader, list) and bool(loader) and isinstance(loader[0], PaddedBatch)
    return (lambda batch: batch.lengths) if padded else None
