"""Measure the inputs of a test set once, and keep what was found, so that pools are judged without the network.

What is found lies in the data cache, under ``select``: every figure of the pages follows from these files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neuralcov.core.files import atomic_write
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.selecting.meter import Meter
from neuralcov_lab.experiments.selecting.named import subject_of
from neuralcov_lab.experiments.selecting.shifts import STRENGTHS
from neuralcov_lab.fetching.cache import cache_folder

# Raised whenever other numbers would be found.
_VERSION = 2


@dataclass(frozen=True, eq=False)
class Measured:
    """Hold what is known of a test set.

    Args:
        columns: numbers of every input, by name.
        orders: places within each of some pools, by method: ``(pools, half)``.
    """

    columns: dict[str, np.ndarray]
    orders: dict[str, np.ndarray]

    def scalar(self, name: str) -> float:
        """Return a number that is not one for each input."""
        return float(self.columns[name])


def measured(context: ExperimentContext, name: str, searched: int) -> dict[str, Measured]:
    """Return what is known of every test set of a subject, from the cache where it lies there."""
    paths = {shift: _path(context, name, shift, searched) for shift in STRENGTHS}
    if not all(path.is_file() for path in paths.values()):
        with quiet():
            meter = Meter(context, subject_of(context, name))
            for shift, path in paths.items():
                if not path.is_file():
                    _write(path, Measured(*meter.measure(STRENGTHS[shift], searched)))
    return {shift: _read(path) for shift, path in paths.items()}


def _path(context: ExperimentContext, name: str, shift: str, searched: int) -> Path:
    scale = context.scale
    numbers = (_VERSION, scale.training, scale.test, searched, context.seed)
    return cache_folder() / "select" / f"{name}.{shift.replace(' ', '-')}.{'-'.join(map(str, numbers))}.npz"


def _write(path: Path, found: Measured) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f"columns/{name}": array for name, array in found.columns.items()}
    arrays |= {f"orders/{name}": array for name, array in found.orders.items()}
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def _read(path: Path) -> Measured:
    parts: dict[str, dict[str, np.ndarray]] = {"columns": {}, "orders": {}}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            kind, _, own = name.partition("/")
            parts[kind][own] = file[name]
    return Measured(parts["columns"], parts["orders"])
