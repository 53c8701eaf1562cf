"""Clocks: seconds on a GPU, seconds of CPU time on a CPU, where other work on the machine must not count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timing:
    """Seconds of one run: the median of the repeats, and the fastest and slowest."""

    median: float
    fastest: float
    slowest: float


def clock(device: torch.device) -> float:
    """Now, after everything sent to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def timed(run: Callable[[], object], device: torch.device, repeats: int = 3, warm_ups: int = 1) -> Timing:
    """How long ``run`` takes."""
    for _ in range(warm_ups):
        run()
    seconds = []
    for _ in range(repeats):
        start = clock(device)
        run()
        seconds.append(clock(device) - start)
    return Timing(statistics.median(seconds), min(seconds), max(seconds))


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes a run takes on a GPU at its peak beyond what was there before; not known on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before
