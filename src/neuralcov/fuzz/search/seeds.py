"""Survey the root inputs before anything is mutated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.fuzz.search.runner import ModelRunner, RunResult
from neuralcov.tap.probabilities import PREDICTED


@dataclass(frozen=True, eq=False)
class SeedReport:
    """Say what the model makes of the root inputs.

    Args:
        predictions: the class it gives each, −1 for none.
        can_be_seed: which may be mutated.
        excluded: by number, what is wrong with the others.
        result: the model's outputs, where somebody wants them.
        margins: how far each is from being misread, and the class it is nearest to; where somebody wants them.
    """

    predictions: np.ndarray
    can_be_seed: np.ndarray
    excluded: dict[int, str] = field(default_factory=dict)
    result: RunResult | None = None
    margins: tuple[np.ndarray, np.ndarray] | None = None


def survey(
    runner: ModelRunner, roots: Tensor, labels: Tensor | None, *, observe: bool, margins: bool = False
) -> SeedReport:
    """Run the model on the root inputs, batch by batch; with ``observe``, coverage takes each batch in.

    Margins are those of the labels; without labels, of what the model predicts. A root input at which the model throws,
    hangs or gives NaN or infinite numbers is excluded as a seed.
    """
    predictions = np.full(len(roots), -1, dtype=np.int64)
    can_be_seed = np.zeros(len(roots), dtype=bool)
    excluded: dict[int, str] = {}
    near, rivals = np.full(len(roots), np.nan), np.full(len(roots), -1, dtype=np.int64)
    rows: list[np.ndarray] = []
    outputs = []
    for start in range(0, len(roots), runner.batch):
        part = slice(start, start + runner.batch)
        known = None if labels is None else labels[part]
        result = runner.run(roots[part], known, _targets(known, len(roots[part]), roots.device) if margins else None)
        excluded |= {start + row: failure.message for row, failure in result.failures.items()}
        if result.activations is None:
            continue
        if observe:
            runner.coverage.update(activations=result.activations)
        finite = result.finite.cpu().numpy()
        can_be_seed[start + result.rows] = finite
        excluded |= {start + int(row): "NaN or infinite outputs" for row in result.rows[~finite]}
        if result.predictions is not None:
            predictions[start + result.rows] = result.predictions.cpu().numpy()
        if result.margins is not None:
            near[start + result.rows] = result.margins[0].cpu().numpy()
            rivals[start + result.rows] = result.margins[1].cpu().numpy()
        rows.append(start + result.rows)
        outputs += result.outputs
    if not can_be_seed.any():
        row, reason = next(iter(excluded.items()))
        raise InputError(f"none of {counted(len(roots), 'input')} can serve as a seed; input {row}: {reason}")
    everything = RunResult(np.concatenate(rows), None, torch.ones(0, dtype=torch.bool), outputs, {})
    return SeedReport(predictions, can_be_seed, excluded, everything, (near, rivals) if margins else None)


def _targets(labels: Tensor | None, count: int, device: torch.device) -> Tensor:
    """Return the classes whose margins to read; −2 stands for whatever is predicted."""
    return torch.full((count,), PREDICTED, device=device) if labels is None else labels
