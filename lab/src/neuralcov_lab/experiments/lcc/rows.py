"""Suites of rows of numbers: noisy copies, variants of one row, noise, attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.images import batches, bounded_attack, predicted
from neuralcov_lab.experiments.lcc.pools import Makers, few_of
from neuralcov_lab.experiments.suites import NORMALISED, NoisyCopies

COPIES, FURTHER, BOUNDS = (0.1,), (0.05, 0.4), (0.1, 0.5)
NOISE = ("uniform noise", "normal noise", "mixed columns")


def row_makers(context: ExperimentContext, model: nn.Module, test: Samples, batch: int) -> Makers:
    """Return what makes suites of rows."""

    def copies(bound: float) -> Callable[[int, int], Iterable[Any]]:
        return lambda number, count: NoisyCopies(
            few_of(context, test, number), count, bound, NORMALISED, batch, context.combined_seed(43, number)
        )

    def variant(number: int, count: int) -> Iterable[Any]:
        one = test.take(context.rows(len(test), 1, 31, number))
        return NoisyCopies(one, count, 0.2, NORMALISED, batch, context.combined_seed(31, number))

    def noise(name: str) -> Callable[[], Iterable[Any]]:
        return lambda: batches(test, noise_rows(name, test.inputs, context.generator(37)), batch)

    def attacks(rows: Tensor) -> Mapping[str, Callable[[], Iterable[Any]]]:
        chosen = test.take(rows)
        chosen = replace(chosen, labels=predicted(model, chosen, batch))

        def bounded(bound: float) -> Callable[[], Iterable[Any]]:
            return lambda: batches(
                chosen, bounded_attack(model, chosen, bound, context.scale.pgd_steps, batch, None), batch
            )

        return {f"PGD ε {bound:g}": bounded(bound) for bound in BOUNDS}

    return Makers(
        {f"copies ±{bound:g}": copies(bound) for bound in COPIES},
        {f"copies ±{bound:g}": copies(bound) for bound in FURTHER},
        variant,
        {name: noise(name) for name in NOISE},
        attacks,
        tuple(f"PGD ε {bound:g}" for bound in BOUNDS),
    )


def noise_rows(name: str, rows: Tensor, random: torch.Generator) -> Tensor:
    """Return as many rows of noise: uniform in each column's range, normal, or each column in an order of its own."""
    if name == "uniform noise":
        low, high = rows.amin(0), rows.amax(0)
        return low + (high - low) * torch.rand(rows.shape, generator=random, device=rows.device)
    if name == "normal noise":
        return rows.mean(0) + rows.std(0) * torch.randn(rows.shape, generator=random, device=rows.device)
    return rows.gather(0, torch.rand(rows.shape, generator=random, device=rows.device).argsort(0))
