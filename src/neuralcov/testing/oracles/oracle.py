"""What every oracle has: a criterion once more, as its definition reads, without a line of what it checks.

Plain loops in float64, slow. A value is that of a list of batches, in order, on top of nothing. Where a definition
leaves a decision to the last digit, an oracle says so by raising ``Undecided``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neuralcov.testing.oracles.suites import Suite

NEAR = 1e-9


class Undecided(Exception):
    """Say that rounding decides."""


class Oracle:
    """Know one criterion with its settings. ``exact``: values are counts, so that nothing is left to rounding.

    Args:
        training: what a criterion learns from.
        settings: its hyper-parameters by name.
    """

    exact = True

    def __init__(self, training: Suite, **settings: Any) -> None:
        self.training = training
        self.__dict__.update(settings)

    def value(self, batches: Sequence[Suite]) -> float:
        """Return the value of all these batches."""
        raise NotImplementedError

    def merged(self, a: Sequence[Suite], b: Sequence[Suite]) -> float:
        """Return the value of one coverage that saw ``a`` merged with one that saw ``b``."""
        return self.value([*a, *b])

    def excluded(self, suite: Suite, row: int) -> bool:
        """Return whether an input is left out."""
        return not suite.finite(row)


def covariance(rows: np.ndarray) -> np.ndarray:
    """Return the covariance of rows, divided by their number."""
    apart = rows - rows.mean(0)
    return np.asarray(apart.T @ apart / len(rows))
