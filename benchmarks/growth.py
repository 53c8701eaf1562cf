"""How cost grows with inputs, neurons, width, layers, classes and the batch, on bare activations.

Beside what is seen stands what the definition of a criterion implies: the exponent of the size that seconds per input
go with, once the sizes are large enough to outweigh what a batch costs by itself.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
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
_PATIENCE = {"cpu": 60.0, "cuda": 4.0}
_SQUARE = ("NLC", "NLC(rule=all)", "LVC")


@dataclass(frozen=True, eq=False)
class Curve:
    """The sizes of a curve, what each means, and the criteria that are measured along it."""

    sizes: Sequence[int]
    widths: Callable[[int], dict[str, int]]
    criteria: tuple[Any, ...]
    inputs: Callable[[int], int] = lambda size: 4_000
    batch: Callable[[int], int] = lambda size: 1_000
    classes: Callable[[int], int] = lambda size: 10


def theory(curve: str, criterion: str) -> float:
    """The power of the size that seconds per input go with by the definition of a criterion."""
    square = criterion in _SQUARE
    powers: dict[str, float] = {
        # Sets of kinds are merged in order, groups of SS and clusters of CC are looked at one by one.
        "inputs": 1.0 if criterion in ("CC(10)", "SS") else 0.0,
        "neurons": 2.0 if square else 1.0,
        "width": 2.0 if square else 1.0,
        "layers": 1.0,
        # A covariance per class is touched by every batch; surprise asks one class's traces, a share of all.
        "classes": {"NLC(classes=1000)": 1.0, "DSC(0.1)": 0.0, "LCC": 0.0}.get(criterion, -1.0),
        # What is seen above that is what a batch costs by itself, shared by its inputs.
        "batch": 0.0,
    }
    return powers[curve]


def curves(device: torch.device, full: bool) -> dict[str, Curve]:
    """Each curve by its name: on a GPU larger sizes, a criterion of each kind, and larger batches."""
    gpu = device.type == "cuda"
    one_of_each = (nc.NC(0.75), nc.KMNC(100), nc.TKNC(10), nc.LCC(), nc.TKNP(10), nc.NLC(), nc.LVC())
    each = one_of_each if gpu else (*NEURONWISE, nc.LCC(), *GROWING, *SPREADING)
    quick = one_of_each[:-1]
    found = {
        "inputs": Curve(
            [10_000, 100_000, 1_000_000, 10_000_000] if gpu else [1_000, 10_000, 100_000, 1_000_000],
            lambda n: {f"layer{i}": 64 for i in range(8)},
            (*each, nc.CC(10), nc.SS()) if gpu else each,
            inputs=lambda n: n,
            batch=lambda n: 10_000 if gpu else 1_000,
        ),
        "neurons": Curve(
            [1_000, 10_000, 100_000],
            lambda n: {f"layer{i}": n // 100 for i in range(100)},
            (*each, *SURPRISED),
        ),
        "width": Curve([128, 512, 2_048, 8_192, 16_384], lambda n: {"layer": n}, (*each, nc.MDSC(10))),
        "layers": Curve([1, 10, 100, 1_000], lambda n: {f"layer{i}": 64 for i in range(n)}, (*quick, nc.SS())),
        "classes": Curve(
            [10, 100, 1_000],
            lambda n: {"a": 256, "b": 256},
            (nc.LCC(), nc.NLC(classes=1_000), *SURPRISED),
            inputs=lambda n: 10_000,
            classes=lambda n: n,
        ),
        "batch": Curve(
            [1, 8, 64, 512, 4_096],
            lambda n: {f"layer{i}": 512 for i in range(50)},
            quick,
            inputs=lambda n: n * (50 if n < 4_096 else 10),
            batch=lambda n: n,
        ),
    }
    if full:
        return found
    few = {"batch": [1, 8]}
    return {
        name: replace(curve, sizes=few.get(name, [100, 200]), inputs=lambda n: 400, batch=lambda n: 100)
        for name, curve in found.items()
    }


def growth(device: torch.device, full: bool, only: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """All curves: seconds per 1,000 inputs at each size, and memory at the peak."""
    done: dict[str, Any] = {}
    known = curves(device, full)
    for name in only or known:
        for points in _points(device, known[name]):
            done[name] = points
            yield done


def _points(device: torch.device, curve: Curve) -> Iterator[dict[str, Any]]:
    points: dict[str, Any] = {}
    slow: set[str] = set()
    for size in curve.sizes:
        for criterion in curve.criteria:
            if criterion.name in slow:
                continue
            start = time.perf_counter()
            try:
                row = _measure(device, curve, size, criterion)
            except (torch.OutOfMemoryError, nc.NeuralcovError) as error:
                row = {"error": str(error).splitlines()[0][:200]}
            points.setdefault(criterion.name, {})[str(size)] = row
            # The next size takes four to ten times as long, or more.
            if time.perf_counter() - start > _PATIENCE[device.type]:
                slow.add(criterion.name)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            yield points


def _measure(device: torch.device, curve: Curve, size: int, criterion: Any) -> dict[str, Any]:
    widths, inputs, batch_size = curve.widths(size), curve.inputs(size), curve.batch(size)
    coverage = nc.Coverage.of_layers(widths, [criterion], device=device)
    batches, training = (_batches(device, widths, curve.classes(size), rows) for rows in (batch_size, 1_000))
    count = inputs // batch_size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        if criterion.learns:
            coverage.calibrate(activations=[next(training) for _ in range(max(1, min(4, inputs // 1_000)))])
        coverage.update(activations=next(batches))
        prepared = [next(batches) for _ in range(min(20, count))]
        if device.type == "cuda":
            # Kernels compile at their first use; on a CPU there are none, and a value may take half a minute.
            coverage.values(warn=False)

        def run() -> None:
            for index in range(count):
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


def _batches(device: torch.device, widths: dict[str, int], classes: int, rows: int) -> Iterator[Any]:
    """Outputs that lie near a few directions, as those of networks do, around the mean of their class."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    bases = {name: draw(16, width) * 0.3 for name, width in widths.items()}
    means = draw(classes, 16)
    while True:
        labels = torch.randint(classes, (rows,), generator=generator, device=device)
        hidden = means[labels] + draw(rows, 16)
        layers = {name: hidden @ basis + 0.1 * draw(rows, basis.shape[1]) for name, basis in bases.items()}
        yield nc.Activations(layers, labels=labels, predictions=labels)
