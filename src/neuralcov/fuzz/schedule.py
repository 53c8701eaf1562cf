"""Which seed comes next: any with the same chance, or rather one that has brought little yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralcov.core.errors import InputError
from neuralcov.fuzz.dice import choices


@dataclass(frozen=True)
class Schedule:
    """How seeds are chosen.

    Args:
        kind: ``"uniform"``, or ``"fresh"``, DeepHunter's: the chance of a seed is proportional to
            ``max(1 − picks/gamma, floor)`` where ``picks`` counts the mutants of it that were kept.
        gamma: after how many picks a seed has only the floor left.
        floor: the least weight.
    """

    kind: str = "uniform"
    gamma: float = 5.0
    floor: float = 0.01

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "fresh"):
            raise InputError(f"schedule={self.kind!r}: expected 'uniform' or 'fresh'")
        if self.gamma <= 0 or not 0 < self.floor <= 1:
            raise InputError(f"gamma={self.gamma}, floor={self.floor}: expected gamma above 0 and a floor in (0, 1]")

    def weights(self, picks: np.ndarray) -> np.ndarray:
        """The weight of each seed.

        >>> Schedule("fresh").weights(np.array([0, 1, 4, 9])).round(2).tolist()
        [1.0, 0.8, 0.2, 0.01]
        """
        if self.kind == "uniform":
            return np.ones(len(picks))
        return np.asarray(np.maximum(1 - picks / self.gamma, self.floor))

    def sample(self, picks: np.ndarray, usable: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """One seed per chance in [0, 1); only seeds that are usable."""
        able = np.flatnonzero(usable)
        if self.kind == "uniform":
            return np.asarray(able[choices(chances, len(able))])
        upto = np.cumsum(self.weights(picks[able]))
        found = np.searchsorted(upto, chances * upto[-1], side="right")
        return np.asarray(able[np.minimum(found, len(able) - 1)])

    def identity(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "gamma": self.gamma, "floor": self.floor}
