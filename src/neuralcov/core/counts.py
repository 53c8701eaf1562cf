"""Count the inputs a criterion is given: those that take part, and those it excludes, by reason.

Counts are one tensor of three numbers on the state's device, so that adding to them waits for nothing. Its positions
have names: ``counts[VALID]`` took part, ``counts[NOT_FINITE]`` were excluded for a NaN or infinite output,
``counts[NOT_PLACEABLE]`` because the criterion has no place for them (a class without training traces, for example).
The same names say, input by input, what became of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Bool, Int

VALID, NOT_FINITE, NOT_PLACEABLE = range(3)


def no_counts(layout: Layout) -> Int[Tensor, "3"]:
    """Return the counts of a state that has observed nothing."""
    return torch.zeros(3, dtype=torch.int64, device=layout.device)


def exclude_placeless(counts: Int[Tensor, "3"], inputs: Int[Tensor, ""]) -> Int[Tensor, "3"]:
    """Move inputs that turned out to have no place from the valid ones to the excluded ones; overwrite ``counts``."""
    counts[VALID] -= inputs
    counts[NOT_PLACEABLE] += inputs
    return counts


def count_admitted(
    counts: Int[Tensor, "3"], admitted: Bool[Tensor, "batch"], exclusions: Int[Tensor, "batch"]
) -> Int[Tensor, "3"]:
    """Add the inputs of a batch that were admitted, and those that were excluded, to the counts."""
    added = count_exclusions(exclusions)
    added[VALID] = admitted.sum()
    return counts + added


def count_exclusions(exclusions: Int[Tensor, "batch"]) -> Int[Tensor, "3"]:
    """Count excluded inputs by reason; the valid ones count 0."""
    reasons = [(exclusions == reason).sum() for reason in (NOT_FINITE, NOT_PLACEABLE)]
    return torch.stack([torch.zeros_like(reasons[0]), *reasons])


def not_finite(batch: Activations) -> Int[Tensor, "batch"]:
    """Return the exclusions of a criterion that excludes inputs with NaN or infinite outputs only."""
    return torch.where(batch.finite, VALID, NOT_FINITE)
