"""Batches of 32 to 256, and half precision with channels last: where the host is the limit, not the device.

Each criterion alone and all together, as multiples of the plain forward pass of the same format and run, with what
``cuda_graph="auto"`` does by itself and with plain calls beside it. A run's first batches are plain calls and one is
recorded: ``ratio`` counts all of that, ``steady ratio`` only what comes after.
"""

from __future__ import annotations

import copy
import statistics
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from benchmarks.subjects import TOGETHER_SMALL, Subject
from benchmarks.timing import clock

# Plain calls first, then one that is recorded.
_FIRST = 4
_PLAIN_BATCHES = 24


def criteria() -> list[Any]:
    """New ones: what observes at a fixed cost per input."""
    return [nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10), nc.LCC(), nc.NLC(), nc.LVC()]


@dataclass(frozen=True, eq=False)
class Run:
    """A model in one format, batches for it, and the criteria to measure, alone and in groups."""

    model: Any
    batches: Sequence[Any]
    chosen: dict[str, list[Any]]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(iter(self.model.parameters())).device

    def forward(self, batch: Any) -> None:
        """The plain forward pass that everything is compared with."""
        with torch.no_grad():
            self.model(**batch) if isinstance(batch, dict) else self.model(batch)


def small(found: Subject, sizes: tuple[int, ...], count: int, rules: tuple[Any, ...], repeats: int) -> Iterator[Any]:
    """Each batch size, the same number of batches of each."""
    done: dict[str, Any] = {}
    chosen = alone_and_together(taught(found.model, found.training[:10_000].split(500)))
    for size in sizes:
        run = Run(found.model, batches_of(found, size, count), chosen)
        for rows in compared(run, rules, repeats):
            done[str(size)] = rows
            yield {"batches": count, "sizes": done}


def half(found: Subject, size: int, count: int, rules: tuple[Any, ...], repeats: int) -> Iterator[Any]:
    """Half precision with channels last, in which a pass takes a fifth of the time."""
    run = half_run(found, size, count)
    for rows in compared(run, rules, repeats):
        yield {"batches": count, "size": size, "format": "float16, channels last", **rows}


def half_run(found: Subject, size: int, count: int) -> Run:
    """The model and its inputs in half precision, channels last; on a CPU in bfloat16, which that computes faster."""
    layout, precision = torch.channels_last, torch.float16 if found.device.type == "cuda" else torch.bfloat16
    model: Any = copy.deepcopy(found.model)  # its type stubs know no memory format
    model = model.to(precision).to(memory_format=layout)
    batches = [part.to(precision).contiguous(memory_format=layout) for part in batches_of(found, size, count)]
    return Run(model, batches, alone_and_together(taught(model, batches[:2])))


def taught(model: Any, training: Sequence[Any], names: Collection[str] = ()) -> list[Any]:
    """The criteria after calibration, all or those of some names."""
    coverage = nc.Coverage(model, [criterion for criterion in criteria() if not names or criterion.name in names])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        coverage.calibrate(list(training), progress=False)
    return list(coverage.criteria)


def alone_and_together(known: list[Any]) -> dict[str, list[Any]]:
    """Each criterion by its name, but LVC, and all in one pass."""
    return {criterion.name: [criterion] for criterion in known if criterion.name != "LVC"} | {TOGETHER_SMALL: known}


def compared(run: Run, rules: tuple[Any, ...], repeats: int) -> Iterator[dict[str, Any]]:
    """Seconds and ratios of each criterion by each rule of ``cuda_graph=``, beside the forward pass."""
    device, batches = run.device, run.batches
    forward = [timed_batches(run.forward, batches, device) for _ in range(repeats + 1)][1:]
    whole, each = (statistics.median(part) for part in zip(*forward, strict=True))
    rows: dict[str, Any] = {}
    known: dict[str, Any] = {
        "forward seconds": whole,
        "forward seconds of a batch": each,
        "forward recorded, seconds of a batch": _recorded(run) if device.type == "cuda" else None,
        "criteria": rows,
    }
    for name, chosen in run.chosen.items():
        rows[name] = {}
        for rule in rules:
            coverage = nc.Coverage(run.model, chosen, cuda_graph=rule)
            # Kernels compile, and a new coverage finds out once which rows belong to which input, as calibration does
            # for users. What is recorded is recorded anew in every run.
            assessed(run, coverage, batches[: _FIRST + 2])
            some = batches if rule is not False or len(rules) == 1 else batches[:_PLAIN_BATCHES]
            times = [assessed(run, coverage, some) for _ in range(repeats if rule is not False else 1)]
            seconds = [time[0] for time in times]
            steady = statistics.median(time[1] for time in times)
            rows[name][str(rule)] = {
                "seconds": seconds,
                "ratio": statistics.median(seconds) / (whole * len(some) / len(batches)),
                "seconds of a batch": steady,
                "steady ratio": steady / each,
                "explain": times[-1][2],
            }
            yield known


def timed_batches(
    observe: Callable[[Any], object], batches: Sequence[Any], device: torch.device
) -> tuple[float, float]:
    """Seconds of all batches, and of one batch after the first few."""
    start = clock(device)
    for batch in batches[:_FIRST]:
        observe(batch)
    middle = clock(device)
    for batch in batches[_FIRST:]:
        observe(batch)
    end = clock(device)
    return end - start, (end - middle) / max(1, len(batches) - _FIRST)


def assessed(run: Run, coverage: nc.Coverage, batches: Sequence[Any]) -> tuple[float, float, str]:
    """Seconds of observing all batches in one block, values included; of one batch later on; and what was recorded."""
    coverage.reset()
    with coverage.tap(), warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        whole, each = timed_batches(coverage.update, batches, run.device)
        start = clock(run.device)
        coverage.values()
        whole += clock(run.device) - start
        said = coverage.explain() if hasattr(coverage, "explain") else ""
    return whole, each, said


def batches_of(found: Subject, size: int, count: int) -> list[Tensor]:
    """Inputs, and training inputs after them, so that no batch comes twice where there are enough."""
    parts = [part for inputs in (found.inputs, found.training) for part in inputs.split(size) if len(part) == size]
    return [parts[index % len(parts)] for index in range(count)]


def _recorded(run: Run) -> float | None:
    """Seconds of a batch of the forward pass alone, as a CUDA graph; ``None`` if the model cannot be recorded."""
    first = run.batches[0]
    place = {k: v.clone() for k, v in first.items()} if isinstance(first, dict) else first.clone()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run.forward(place)
    except RuntimeError as error:
        print(f"the forward pass alone cannot be recorded: {str(error).splitlines()[0]}", flush=True)
        return None

    def replay(batch: Any) -> None:
        for name in place if isinstance(place, dict) else (slice(None),):
            place[name].copy_(batch[name])
        graph.replay()

    return timed_batches(replay, run.batches, run.device)[1]
