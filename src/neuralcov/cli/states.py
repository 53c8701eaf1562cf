"""State files as results, and two of them compared: what ``compare``, ``gate`` and ``report`` begin with."""

from __future__ import annotations

import warnings
from pathlib import PurePath

from neuralcov.cli.console import note
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.core.files import AnyPath, name_of
from neuralcov.coverage.coverage import Coverage
from neuralcov.results.compare import Comparison, Side
from neuralcov.results.compare import compare as compare_sides
from neuralcov.results.results import Results


def compare_states(
    paths: tuple[AnyPath, AnyPath], coverages: tuple[Coverage, Coverage], *, models: bool = False
) -> tuple[Comparison, Results]:
    """Compare two states, those that count kinds at the size of the smaller one; return the second's results too.

    Args:
        paths: where they come from.
        coverages: what they hold.
        models: whether they are one suite on two networks.
    """
    fewer = min(coverage.inputs for coverage in coverages)
    if not fewer:
        empty = paths[0 if not coverages[0].inputs else 1]
        raise InputError(f"{name_of(empty)}: no input was observed: nothing to compare")
    sides = []
    for path, coverage in zip(paths, coverages, strict=True):
        # At its own size a suite is what it is.
        smaller = coverage.rarefied(fewer) if coverage.inputs > fewer else {}
        sides.append(Side(state_results(path, coverage), {name: value for name, (value, _) in smaller.items()}))
    for side in sides:
        for sentence in side.result.findings:
            note(f"{side.result.suite}: {sentence}")
    return compare_sides(*sides, models=models), sides[1].result


def state_results(path: AnyPath, coverage: Coverage) -> Results:
    """Return what a state holds, the suite called by its file."""
    with warnings.catch_warnings():
        # Told as notes.
        warnings.simplefilter("ignore", CoverageWarning)
        return coverage.results(suite=PurePath(name_of(path)).name)
