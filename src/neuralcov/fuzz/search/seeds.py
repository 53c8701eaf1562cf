"""Survey the root inputs before anything is mutated, and choose which seed comes next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.fuzz.randomness import choices
from neuralcov.fuzz.search.runner import ModelRunner, RunResult


@dataclass(frozen=True, eq=False)
class SeedReport:
    """Predicted class (−1: none) and usability of every root input, what was wrong with the others, the outputs."""

    predictions: np.ndarray
    usable: np.ndarray
    left_out: dict[int, str] = field(default_factory=dict)
    ran: RunResult | None = None


def survey(runner: ModelRunner, roots: Tensor, labels: Tensor | None, *, observe: bool) -> SeedReport:
    """Run the model on the root inputs, batch by batch; with ``observe``, coverage takes each batch in.

    A root input at which the model throws, hangs or gives NaN or infinite numbers is left out as a seed.
    """
    predictions = np.full(len(roots), -1, dtype=np.int64)
    usable = np.zeros(len(roots), dtype=bool)
    left_out: dict[int, str] = {}
    rows: list[np.ndarray] = []
    outputs = []
    for start in range(0, len(roots), runner.batch):
        part = slice(start, start + runner.batch)
        ran = runner.run(roots[part], None if labels is None else labels[part])
        left_out |= {start + row: failure.message for row, failure in ran.failures.items()}
        if ran.activations is None:
            continue
        if observe:
            runner.coverage.update(activations=ran.activations)
        finite = ran.finite.cpu().numpy()
        usable[start + ran.rows] = finite
        left_out |= {start + int(row): "NaN or infinite outputs" for row in ran.rows[~finite]}
        if ran.predictions is not None:
            predictions[start + ran.rows] = ran.predictions.cpu().numpy()
        rows.append(start + ran.rows)
        outputs += ran.outputs
    if not usable.any():
        row, reason = next(iter(left_out.items()))
        raise InputError(f"none of {len(roots)} inputs can serve as a seed; input {row}: {reason}")
    everything = RunResult(np.concatenate(rows), None, torch.ones(0, dtype=torch.bool), outputs, {})
    return SeedReport(predictions, usable, left_out, everything)


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
