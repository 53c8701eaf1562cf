"""Say how often each seed is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuralcov.core.errors import InputError


@dataclass(frozen=True)
class Schedule:
    """Say how often each seed is chosen.

    Args:
        kind: ``"uniform"``, or ``"fresh"``, DeepHunter's: the chance of a seed is proportional to
            ``max(1 − picks/gamma, floor)`` where ``picks`` counts the mutants of it that were kept; ``"picked"`` is
            the same where ``picks`` counts how often it was sampled.
        gamma: after how many picks a seed has only the floor left.
        floor: the least weight.
    """

    kind: str = "uniform"
    gamma: float = 5.0
    floor: float = 0.01

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "fresh", "picked"):
            raise InputError(f"schedule={self.kind!r}: expected 'uniform', 'fresh' or 'picked'")
        if self.gamma <= 0 or not 0 < self.floor <= 1:
            raise InputError(f"gamma={self.gamma}, floor={self.floor}: expected gamma above 0 and a floor in (0, 1]")

    @classmethod
    def of(cls, schedule: str | Schedule) -> Schedule:
        """Return the schedule of a name; a schedule as it is."""
        return schedule if isinstance(schedule, Schedule) else cls(schedule)

    @property
    def counted(self) -> str:
        """Return the column of the corpus that counts the picks."""
        return "sampled" if self.kind == "picked" else "picks"

    def weights(self, picks: np.ndarray) -> np.ndarray:
        """Return the weight of each seed.

        >>> Schedule("fresh").weights(np.array([0, 1, 4, 9])).round(2).tolist()
        [1.0, 0.8, 0.2, 0.01]
        """
        if self.kind == "uniform":
            return np.ones(len(picks))
        return np.asarray(np.maximum(1 - picks / self.gamma, self.floor))

    def sample(self, picks: np.ndarray, can_be_seed: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Draw one seed per chance in [0, 1), of those that can be seeds."""
        seeds = np.flatnonzero(can_be_seed)
        if self.kind == "uniform":
            return np.asarray(seeds[np.minimum((chances * len(seeds)).astype(np.int64), len(seeds) - 1)])
        upto = np.cumsum(self.weights(picks[seeds]))
        found = np.searchsorted(upto, chances * upto[-1], side="right")
        return np.asarray(seeds[np.minimum(found, len(seeds) - 1)])
