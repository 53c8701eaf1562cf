"""Survey the root inputs before anything is mutated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.fuzz.search.runner import ModelRunner, RunResult


@dataclass(frozen=True, eq=False)
class SeedReport:
    """Say what the model makes of the root inputs.

    Args:
        predictions: the class it gives each, −1 for none.
        can_be_seed: which may be mutated.
        excluded: by number, what is wrong with the others.
        result: the model's outputs, where somebody wants them.
    """

    predictions: np.ndarray
    can_be_seed: np.ndarray
    excluded: dict[int, str] = field(default_factory=dict)
    result: RunResult | None = None


def survey(runner: ModelRunner, roots: Tensor, labels: Tensor | None, *, observe: bool) -> SeedReport:
    """Run the model on the root inputs, batch by batch; with ``observe``, coverage takes each batch in.

    A root input at which the model throws, hangs or gives NaN or infinite numbers is excluded as a seed.
    """
    predictions = np.full(len(roots), -1, dtype=np.int64)
    can_be_seed = np.zeros(len(roots), dtype=bool)
    excluded: dict[int, str] = {}
    rows: list[np.ndarray] = []
    outputs = []
    for start in range(0, len(roots), runner.batch):
        part = slice(start, start + runner.batch)
        result = runner.run(roots[part], None if labels is None else labels[part])
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
        rows.append(start + result.rows)
        outputs += result.outputs
    if not can_be_seed.any():
        row, reason = next(iter(excluded.items()))
        raise InputError(f"none of {len(roots)} inputs can serve as a seed; input {row}: {reason}")
    everything = RunResult(np.concatenate(rows), None, torch.ones(0, dtype=torch.bool), outputs, {})
    return SeedReport(predictions, can_be_seed, excluded, everything)
