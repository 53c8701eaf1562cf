"""Saving, loading and merging states."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neuralcov as nc
from benchmarks.subjects import Subject
from benchmarks.timing import timed


def states(found: Subject, criteria: tuple[Any, ...], seen: int) -> Iterator[dict[str, Any]]:
    """Seconds to save, load and merge, and the size of the file, per criterion."""
    rows = {}
    for criterion in criteria:
        coverage = nc.Coverage(found.model, [criterion])
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.assess(found.inputs[:seen].split(1000), progress=False)
            other = nc.Coverage(found.model, [criterion])
            other.assess(found.inputs[seen // 2 : seen].split(1000), progress=False)
            path = Path(folder) / "state.ncov"
            # The identity of a calibration is computed once and kept; it is no part of saving or merging.
            coverage.calibration_ids()
            rows[criterion.name] = {
                "save seconds": timed(lambda c=coverage, p=path: c.save(p), found.device, 1, 0).median,
                "load seconds": timed(lambda p=path: nc.Coverage.load(p, found.model), found.device, 1, 0).median,
                "merge seconds": timed(
                    lambda c=coverage, o=other: c.merge(o, overlap="allow"), found.device, 1, 0
                ).median,
                "file bytes": path.stat().st_size,
            }
        yield {"observed": seen, "criteria": rows}
