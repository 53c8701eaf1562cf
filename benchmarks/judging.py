"""Judging candidates: the gain of single inputs, for batches of 1 to 16,384 of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch

import neuralcov as nc
from benchmarks.subjects import Subject
from benchmarks.timing import timed


def gains(found: Subject, criteria: tuple[Any, ...], sizes: tuple[int, ...], seen: int) -> Iterator[dict[str, Any]]:
    """Candidates per second, model run included and not, on coverage that has seen some inputs."""
    rows: dict[str, Any] = {}
    for criterion in criteria:
        coverage = nc.Coverage(found.model, [criterion])
        with coverage.tap(), warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            for batch in found.inputs[:seen].split(min(seen, 1000)):
                coverage.update(batch)
            for size in sizes:
                candidates = found.training[:size]
                if len(candidates) < size:
                    continue
                parts = [coverage.run(b, predictions=False)[0] for b in candidates.split(1000)]
                batch = _joined(parts)
                alone = timed(lambda c=coverage, b=batch: c.gain(activations=_fresh(b)), found.device, 3)
                rows.setdefault(criterion.name, {})[str(size)] = {
                    "seconds": alone.median,
                    "candidates per second": size / alone.median,
                }
        yield {"observed before": seen, "criteria": rows}


def admissions(found: Subject, criteria: tuple[Any, ...], seen: int, offered: int) -> Iterator[dict[str, Any]]:
    """Inputs offered per second when each is judged on the state it meets, activations given."""
    rows = {}
    for criterion in criteria:
        coverage = nc.Coverage(found.model, [criterion])
        with coverage.tap(), warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            for batch in found.inputs[:seen].split(min(seen, 1000)):
                coverage.update(batch)
            parts = [coverage.run(b, predictions=False)[0] for b in found.training[:offered].split(1000)]
            batch, state = _joined(parts), coverage.states[0]
            taken: list[int] = []

            def admit(c: Any = criterion, s: Any = state, b: Any = batch, t: list[int] = taken) -> None:
                t.append(int(c.admit(s, _fresh(b))[0].sum()))

            timing = timed(admit, found.device, 2)
            rows[criterion.name] = {
                "offered": offered,
                "admitted": taken[-1],
                "seconds": timing.median,
                "offered per second": offered / timing.median,
            }
        yield {"observed before": seen, "criteria": rows}


def _joined(parts: list[Any]) -> Any:
    layers = {name: torch.cat([part.layers[name] for part in parts]) for name in parts[0].layers}
    classes = list(layers.values())[-1].argmax(1)
    return nc.Activations(layers, labels=classes, predictions=classes)


def _fresh(batch: Any) -> Any:
    """The same batch without what was computed for it before."""
    return nc.Activations(batch.layers, batch.labels, batch.predictions)
