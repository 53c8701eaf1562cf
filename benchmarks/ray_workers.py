"""A campaign on Ray with 1, 2, … workers (0: none): candidates by CPU time, and what the driver spends on them.

    python -m benchmarks.ray_workers --workers 0 1 2 --model resnet50 --wave 64 --iterations 128
    python -m benchmarks.ray_workers --driver 64 256 1024 --model mobilenet_v2

CPU time is that of the processes, so that other work on the machine does not count. The driver is alone: it can serve
as many workers as their CPU time of a wave is a multiple of its own. ``--driver`` runs the worker in the same process,
without Ray, and tells what of a wave is the driver's, for waves of some sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import neuralcov as nc
from neuralcov.distributed import Event
from neuralcov.integrations.ray import FuzzWorkers
from neuralcov.sources.names import criterion_from_text
from neuralcov_lab import zoo

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(process: int) -> float:
    """Return the seconds of CPU time that a process has taken."""
    # Behind the name of the program, which stands in brackets and may hold anything.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def fuzzer_of(model: str, criterion: str, wave: int, folder: str | None = None) -> Callable[[], nc.Fuzzer]:
    """Return what builds the campaign's fuzzer, here and in every worker."""

    def make() -> nc.Fuzzer:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        net = getattr(zoo, model)().eval()
        random = torch.Generator().manual_seed(1)
        seeds = torch.randint(0, 256, (2 * wave, 3, 32, 32), generator=random, dtype=torch.uint8)
        coverage = nc.Coverage(net, [criterion_from_text(criterion)])
        return nc.Fuzzer(coverage, seeds, folder=folder, wave=wave, guide="coverage", checkpoint=3600)

    return make


def measure(model: str, criterion: str, wave: int, count: int, iterations: int) -> dict[str, float]:
    """Return what one campaign of so many workers took."""
    with tempfile.TemporaryDirectory() as folder, FuzzWorkers(fuzzer_of(model, criterion, wave), count) as workers:
        place = f"{folder}/campaign"
        # Until all are there, and have built what they need.
        warm = fuzzer_of(model, criterion, wave, place)().run(iterations=2 * wave * count, workers=workers)
        while len(workers.waiting()) < count:
            workers.receive()
        pids = workers.pids()
        fuzzer = fuzzer_of(model, criterion, wave, place)()
        before, own, started = [cpu_of(pid) for pid in pids], resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        done = fuzzer.resume(iterations=warm.iterations + iterations, workers=workers)
        seconds, own_after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_SELF)
        taken = sum(cpu_of(pid) - was for pid, was in zip(pids, before, strict=True))
    driver = own_after.ru_utime + own_after.ru_stime - own.ru_utime - own.ru_stime
    judged = done.stats.judged - warm.stats.judged
    return {
        "workers": count,
        "candidates": judged,
        "waves": done.stats.waves - warm.stats.waves,
        "seconds": seconds,
        "workers' CPU seconds": taken,
        "driver's CPU seconds": driver,
        "candidates per CPU second of a worker": judged / taken,
        "driver's CPU ms per wave": 1000 * driver / max(1, done.stats.waves - warm.stats.waves),
        "workers that one driver serves": taken / driver,
    }


def alone(model: str, criterion: str, wave: int, iterations: int) -> dict[str, float]:
    """Return what one process takes that does all by itself."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/campaign"
        warm = fuzzer_of(model, criterion, wave, place)().run(iterations=2 * wave)
        fuzzer, before = fuzzer_of(model, criterion, wave, place)(), time.process_time()
        done = fuzzer.resume(iterations=warm.iterations + iterations)
        taken = time.process_time() - before
    judged = done.stats.judged - warm.stats.judged
    return {"workers": 0, "candidates": judged, "CPU seconds": taken, "candidates per CPU second": judged / taken}


class WorkerHere:
    """One worker in this process, and the CPU time that it takes."""

    def __init__(self, build: Callable[[], nc.Fuzzer]) -> None:
        self.seconds = 0.0
        self._worker = build().worker()
        self._events = [Event("joined", 0)]

    def __len__(self) -> int:
        return 1

    def waiting(self) -> list[int]:
        """Return the worker, unless an event will tell of it."""
        return [] if self._events else [0]

    def share(self, content: Any) -> Any:
        """Return the content itself."""
        return content

    def send(self, worker: int, message: Mapping[str, Any]) -> None:
        """Have the worker answer at once."""
        before = time.process_time()
        answer = self._worker.answer(message)
        self.seconds += time.process_time() - before
        self._events.append(Event("answered", worker, answer))

    def receive(self) -> Event:
        """Return what happened."""
        return self._events.pop(0)


def driver(model: str, criterion: str, wave: int) -> dict[str, float]:
    """Return what of ten waves the driver takes, and what the worker."""
    with tempfile.TemporaryDirectory() as folder:
        workers = WorkerHere(fuzzer_of(model, criterion, wave))
        place = f"{folder}/campaign"
        warm = fuzzer_of(model, criterion, wave, place)().run(calls=wave, workers=workers)
        fuzzer, workers.seconds = fuzzer_of(model, criterion, wave, place)(), 0.0
        before = time.process_time()
        done = fuzzer.resume(calls=10 * wave, workers=workers)
        taken = time.process_time() - before - workers.seconds
    waves, judged = done.stats.waves - warm.stats.waves, done.stats.judged - warm.stats.judged
    return {
        "wave": wave,
        "candidates": judged,
        "waves": waves,
        "worker's CPU ms per candidate": 1000 * workers.seconds / judged,
        "driver's CPU ms per candidate": 1000 * taken / judged,
        "driver's CPU ms per wave": 1000 * taken / waves,
    }


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--driver", type=int, nargs="+", default=[])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--criterion", default="tknc:10")
    parser.add_argument("--wave", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=256)
    chosen = parser.parse_args()
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    for wave in chosen.driver:
        print(json.dumps({k: round(v, 3) for k, v in driver(chosen.model, chosen.criterion, wave).items()}), flush=True)
    for count in [] if chosen.driver else chosen.workers:
        work = (chosen.model, chosen.criterion, chosen.wave)
        found = measure(*work, count, chosen.iterations) if count else alone(*work, chosen.iterations)
        print(json.dumps({k: round(v, 3) for k, v in found.items()}), flush=True)


if __name__ == "__main__":
    main()
