"""Surprise at ImageNet's size: 1,000,000 training traces of 27,560 neurons in 1,000 classes, 50,000 test inputs.

The traces are synthetic, made on the device: their class's mean and a common low-dimensional part with noise.
What is timed is the search, not what the traces show. A second run, at a quarter of the size, keeps the traces
on disk and streams them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from neuralcov.criteria.surprise.class_traces import ClassTraces
from neuralcov.statistics.traces import TraceStore

_HIDDEN = 64
_TESTS_AT_ONCE = 25_000


def scale(
    device: torch.device, traces: int, width: int, classes: int, tests: int, budget: int
) -> Iterator[dict[str, Any]]:
    """Seconds and memory of LSC, DSC and MDSC, on traces in memory or, beyond ``budget`` bytes, on disk."""
    maker = _Maker(device, width, classes)
    start = time.perf_counter()
    store = TraceStore.empty(["trace"], budget, device)
    labels = []
    for first in range(0, traces, 2_000):
        size = min(2_000, traces - first)
        rows, classes_of = maker(size)
        store = store.observe(nc.Activations({"trace": rows}, labels=classes_of, predictions=classes_of))
        labels.append(classes_of)
    store = store.finished()
    found: dict[str, Any] = {
        "traces": traces,
        "neurons": width,
        "classes": classes,
        "tests": tests,
        "bytes of traces": 4 * traces * width,
        "budget bytes": budget,
        "bytes on the device": _resident(store.blocks, budget),
        "seconds to fill": time.perf_counter() - start,
        "criteria": {},
    }
    view = ClassTraces(store, ["trace"], [width], "predicted", 1e-5)
    batches = []
    for first in range(0, tests, _TESTS_AT_ONCE):
        questions, asked = maker(min(_TESTS_AT_ONCE, tests - first))
        batches.append(nc.Activations({"trace": questions}, predictions=asked))
    for criterion in (nc.LSC(10), nc.DSC(0.1), nc.MDSC(10)):
        found["criteria"][criterion.name] = _timed(criterion, view, batches, device)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        yield found


def _resident(blocks: tuple[Tensor, ...], budget: int) -> int:
    """What the first blocks, those within the budget, take; the others are on disk."""
    total = 0
    for block in blocks:
        if total + block.nbytes > budget:
            break
        total += block.nbytes
    return total


def _timed(criterion: Any, view: ClassTraces, batches: list[Any], device: torch.device) -> dict[str, Any]:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    scorer = criterion.scorer(view)
    fitted = time.perf_counter()
    scores = torch.cat([scorer.surprises(batch) for batch in batches])
    total = float(scores.nansum())
    end = time.perf_counter()
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {
        "seconds to fit": fitted - start,
        "seconds to score": end - fitted,
        "peak bytes": peak,
        "buckets": len(torch.unique((scores / criterion.bucket).floor())),
        "mean surprise": total / len(scores),
    }


class _Maker:
    """Makes traces of random classes on the device."""

    def __init__(self, device: torch.device, width: int, classes: int) -> None:
        self._generator = torch.Generator(device).manual_seed(0)
        self._basis = self._draw(device, _HIDDEN, width) / _HIDDEN**0.5
        self._means = 2 * self._draw(device, classes, _HIDDEN)
        self._device, self._classes = device, classes

    def __call__(self, size: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(self._classes, (size,), generator=self._generator, device=self._device)
        hidden = self._means[labels] + self._draw(self._device, size, _HIDDEN)
        noise = 0.3 * self._draw(self._device, size, self._basis.shape[1])
        return hidden @ self._basis + noise, labels

    def _draw(self, device: torch.device, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator, device=device)
