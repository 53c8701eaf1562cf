"""How cost grows with inputs, neurons, width of one layer and classes, on bare activations."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from benchmarks.timing import clock, peak_memory

NEURONWISE = (nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10))
GROWING = (nc.TKNP(10), nc.CC(10), nc.SS())
SPREADING = (nc.NLC(), nc.NLC(rule="all"), nc.LVC())
SURPRISED = (nc.LSC(10), nc.DSC(0.1), nc.MDSC(10))
# Seconds a point of a curve may take before the larger sizes of that curve are left out.
_PATIENCE = 60
# From a size on the curve: the layers' widths, how many inputs, how many classes.
Shape = Callable[[int], tuple[dict[str, int], int, int]]


def growth(device: torch.device, full: bool) -> Iterator[dict[str, Any]]:
    """All four curves: seconds per 1,000 inputs at each size, and memory at the peak."""
    curves: dict[str, tuple[list[int], Shape, tuple[Any, ...]]] = {
        "inputs": (
            [1_000, 10_000, 100_000, 1_000_000] if full else [1_000, 4_000],
            lambda n: ({f"layer{i}": 64 for i in range(8)}, n, 10),
            (*NEURONWISE, *GROWING, *SPREADING),
        ),
        "neurons": (
            [1_000, 10_000, 100_000] if full else [1_000, 4_000],
            lambda n: ({f"layer{i}": n // 100 for i in range(100)}, 4_000 if full else 1_000, 10),
            (*NEURONWISE, *GROWING, *SPREADING, *SURPRISED),
        ),
        "width": (
            [128, 512, 2_048, 8_192, 16_384] if full else [128, 512],
            lambda n: ({"layer": n}, 4_000 if full else 1_000, 10),
            (nc.NC(0.75), nc.TKNC(10), *SPREADING, nc.MDSC(10)),
        ),
        "classes": (
            [10, 100, 1_000] if full else [10, 50],
            lambda n: ({"a": 256, "b": 256}, 10_000 if full else 1_000, n),
            (nc.NLC(classes=1_000), *SURPRISED),
        ),
    }
    done: dict[str, Any] = {}
    for name, (sizes, shape, criteria) in curves.items():
        for curve in _curve(device, sizes, shape, criteria):
            done[name] = curve
            yield done


def _curve(device: torch.device, sizes: list[int], shape: Shape, criteria: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    curve: dict[str, Any] = {}
    slow: set[str] = set()
    for size in sizes:
        widths, inputs, classes = shape(size)
        for criterion in criteria:
            if criterion.name in slow:
                continue
            start = time.perf_counter()
            try:
                row = _measure(device, widths, inputs, classes, criterion)
            except (torch.OutOfMemoryError, nc.NeuralcovError) as error:
                row = {"error": str(error).splitlines()[0][:200]}
            curve.setdefault(criterion.name, {})[str(size)] = row
            # The next size takes four to ten times as long, or more.
            if time.perf_counter() - start > _PATIENCE:
                slow.add(criterion.name)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            yield curve


def _measure(device: torch.device, widths: dict[str, int], inputs: int, classes: int, criterion: Any) -> dict[str, Any]:
    coverage = nc.Coverage.of_layers(widths, [criterion], device=device)
    batches = _batches(device, widths, classes)
    batch_size = min(1_000, inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        if criterion.learns:
            coverage.calibrate(activations=[next(batches) for _ in range(max(1, min(4, inputs // batch_size)))])
        coverage.update(activations=next(batches))
        prepared = [next(batches) for _ in range(min(20, inputs // batch_size))]

        def run() -> None:
            for index in range(inputs // batch_size):
                again = prepared[index % len(prepared)]
                shift = 0.01 * (index // len(prepared))
                layers = {name: outputs + shift for name, outputs in again.layers.items()} if shift else again.layers
                coverage.update(activations=nc.Activations(layers, again.labels, again.predictions))
            coverage.values(warn=False)

        start = clock(device)
        peak = peak_memory(run, device)
        if peak is None:
            run()
        seconds = clock(device) - start
    return {"seconds per 1,000": seconds * 1_000 / inputs, "peak bytes": peak, "inputs": inputs}


def _batches(device: torch.device, widths: dict[str, int], classes: int) -> Iterator[Any]:
    """Outputs that lie near a few directions, as those of networks do, around the mean of their class."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    bases = {name: draw(16, width) * 0.3 for name, width in widths.items()}
    means = draw(classes, 16)
    while True:
        labels = torch.randint(classes, (1_000,), generator=generator, device=device)
        hidden = means[labels] + draw(1_000, 16)
        layers = {name: hidden @ basis + 0.1 * draw(1_000, basis.shape[1]) for name, basis in bases.items()}
        yield nc.Activations(layers, labels=labels, predictions=labels)
