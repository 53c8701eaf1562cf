"""Batches, suites and training data as the oracles see them: float64 arrays."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass
class Suite:
    """Outputs by layer, ``(inputs, neurons)`` in float64; relevance alike; which inputs have a layer."""

    layers: dict[str, np.ndarray]
    labels: np.ndarray
    predictions: np.ndarray
    relevance: dict[str, np.ndarray]
    present: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self):
        return len(self.labels)

    def take(self, rows):
        """Some of the inputs."""
        return Suite(
            {name: part[rows] for name, part in self.layers.items()},
            self.labels[rows],
            self.predictions[rows],
            {name: part[rows] for name, part in self.relevance.items()},
            {name: part[rows] for name, part in self.present.items()},
        )

    def has(self, name, row):
        """Whether an input has a layer."""
        return name not in self.present or bool(self.present[name][row])

    def finite(self, row):
        """Whether all that an input has is finite."""
        return bool(self.finite_rows[row])

    @cached_property
    def finite_rows(self):
        """That of every input."""
        there = [np.isfinite(part).all(1) | ~self.having(name) for name, part in self.layers.items()]
        return np.all(there, axis=0)

    def having(self, name):
        """Which inputs have a layer."""
        return self.present.get(name, np.ones(len(self), dtype=bool))

    def outputs(self, name):
        """The outputs of one layer, of the inputs that take part and have it."""
        return self.layers[name][self.finite_rows & self.having(name)]

    @property
    def neurons(self):
        """Neurons of all layers."""
        return sum(part.shape[1] for part in self.layers.values())


def joined(batches):
    """All inputs of some batches."""
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
