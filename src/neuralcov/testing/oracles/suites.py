"""Batches, suites and training data as the oracles see them: float64 arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


@dataclass
class Suite:
    """Hold outputs by layer, ``(inputs, neurons)`` in float64; relevance alike; which inputs have a layer."""

    layers: dict[str, np.ndarray]
    labels: np.ndarray
    predictions: np.ndarray
    relevance: dict[str, np.ndarray]
    present: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Any) -> Suite:
        """Return some of the inputs."""
        return Suite(
            {name: part[rows] for name, part in self.layers.items()},
            self.labels[rows],
            self.predictions[rows],
            {name: part[rows] for name, part in self.relevance.items()},
            {name: part[rows] for name, part in self.present.items()},
        )

    def has(self, name: str, row: int) -> bool:
        """Return whether an input has a layer."""
        return name not in self.present or bool(self.present[name][row])

    def finite(self, row: int) -> bool:
        """Return whether all that an input has is finite."""
        return bool(self.finite_rows[row])

    @cached_property
    def finite_rows(self) -> np.ndarray:
        """Which inputs are finite in all that they have."""
        there = [np.isfinite(part).all(1) | ~self.having(name) for name, part in self.layers.items()]
        return np.asarray(np.all(there, axis=0))

    def having(self, name: str) -> np.ndarray:
        """Return which inputs have a layer."""
        return self.present.get(name, np.ones(len(self), dtype=bool))

    def outputs(self, name: str) -> np.ndarray:
        """Return the outputs of one layer, of the inputs that take part and have it."""
        return np.asarray(self.layers[name][self.finite_rows & self.having(name)])

    @property
    def neurons(self) -> int:
        """The number of neurons of all layers."""
        return sum(int(part.shape[1]) for part in self.layers.values())


def joined(batches: Sequence[Suite]) -> Suite:
    """Return all inputs of some batches."""
    first = batches[0]
    return Suite(
        {name: np.concatenate([b.layers[name] for b in batches]) for name in first.layers},
        np.concatenate([b.labels for b in batches]),
        np.concatenate([b.predictions for b in batches]),
        {name: np.concatenate([b.relevance[name] for b in batches]) for name in first.relevance},
        {
            name: np.concatenate([b.present.get(name, np.ones(len(b), bool)) for b in batches])
            for name in first.layers
            if any(name in b.present for b in batches)
        },
    )
