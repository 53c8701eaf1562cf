"""One coverage from many state files, in the memory of two of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable

from neuralcov.core.counted import counted
from neuralcov.core.errors import MismatchError, SameInputsError, StateFileError
from neuralcov.core.files import matching, name_of
from neuralcov.coverage.coverage import Coverage


def combine(
    paths: Iterable[str | os.PathLike[str]], *, overlap: str = "refuse", skipped: Callable[[str], None]
) -> Coverage:
    """Merge state files in the order given; skip one whose runs are all there already.

    Files are read one after another, and large states are merged into the first's memory, a layer at a time.

    Args:
        paths: the files, of the same model, criteria and calibration.
        overlap: as for ``Coverage.merge``.
        skipped: told of every file that was skipped, with its name and why.
    """
    total: Coverage | None = None
    for path in paths:
        part = Coverage.load(path)
        if total is None:
            total = part
            total.own_states()
            continue
        try:
            total.merge(part, overlap=overlap)
        except MismatchError as error:
            if not isinstance(error, SameInputsError) or not total.has_runs_of(part):
                raise type(error)(f"{name_of(path)}: {error}") from error
            skipped(f"{name_of(path)}: skipped, all of its {counted(part.inputs, 'input')} are there already")
        # Before the next one is read.
        del part
    assert total is not None, "there is at least one file"
    return total


def side_by_side(paths: Iterable[str | os.PathLike[str]], over: str) -> Coverage:
    """Put the layers of state files side by side, in the order given; see ``Coverage.united``.

    Args:
        paths: the files, of the same criteria and inputs and of different layers.
        over: ``"layers"`` or ``"stages"``.
    """
    total: Coverage | None = None
    for path in paths:
        part = Coverage.load(path)
        try:
            total = part if total is None else Coverage.united([total, part], over=over)
        except MismatchError as error:
            raise type(error)(f"{name_of(path)}: {error}") from error
    assert total is not None, "there is at least one file"
    return total


def expanded(patterns: Iterable[str]) -> list[str]:
    """Return the files that names and patterns stand for, those of a pattern in the order of their names."""
    found: list[str] = []
    for pattern in patterns:
        # A question mark in a URL begins its query.
        plain = "*" not in pattern if "://" in pattern else not glob.has_magic(pattern)
        if plain or os.path.exists(pattern):
            found.append(pattern)
            continue
        fitting = matching(pattern)
        if not fitting:
            raise StateFileError(f"{name_of(pattern)}: no file fits this pattern")
        found += fitting
    return found
