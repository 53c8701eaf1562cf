"""What the model makes of the root inputs, before anything is mutated."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.fuzz.running import Ran, Runner


@dataclass(frozen=True, eq=False)
class Survey:
    """Predicted class (−1: none) and usability of every root input, what was wrong with the others, the outputs."""

    predictions: np.ndarray
    usable: np.ndarray
    left_out: dict[int, str] = field(default_factory=dict)
    ran: Ran | None = None


def survey(runner: Runner, roots: Tensor, labels: Tensor | None, *, observe: bool) -> Survey:
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
    everything = Ran(np.concatenate(rows), None, torch.ones(0, dtype=torch.bool), outputs, {})
    return Survey(predictions, usable, left_out, everything)
