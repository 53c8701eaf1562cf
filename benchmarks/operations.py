"""What a batch asks of the device: how many operations, how many calls of the host start them; and profiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import neuralcov as nc
from benchmarks.small import Run, alone_and_together, batches_of, half_run, taught
from benchmarks.subjects import TOGETHER_SMALL, Subject
from benchmarks.wide import wide_run

# What starts work on a device, by the names under which profilers know it.
_STARTS = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaMemsetAsync")
# Batches until a shape is recorded and replayed.
_BEFORE = 6
_MOST_ROWS = 12


def operations(found: Subject, size: int, rules: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Operations per batch of the forward pass, and with each criterion by each rule of ``cuda_graph=``."""
    run = Run(
        found.model,
        batches_of(found, size, 8),
        alone_and_together(taught(found.model, found.training[:1000].split(100))),
    )
    run.forward(run.batches[0])
    rows: dict[str, Any] = {}
    known = {"size": size, "forward": _counted(lambda: run.forward(run.batches[0]), found.device), "criteria": rows}
    for name, chosen in run.chosen.items():
        for rule in rules:
            coverage, observe = _running(run, chosen, rule)
            with coverage.tap(), warnings.catch_warnings():
                warnings.simplefilter("ignore", nc.CoverageWarning)
                for _ in range(_BEFORE):
                    observe()
                rows.setdefault(name, {})[str(rule)] = _counted(observe, found.device)
        yield known


def profiles(found: Subject, cases: list[tuple[str, str]], full: bool) -> Iterator[dict[str, Any]]:
    """Where the time of some cases goes: a case is a batch size, ``half`` or a wide model, and criteria by name."""
    done = []
    for where, name in cases:
        run = _run_of(found, where, full)
        coverage, observe = _running(run, run.chosen[name], "auto")
        with coverage.tap(), warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            for _ in range(_BEFORE):
                observe()
            rows = _profiled(observe, found.device)
            done.append({"where": where, "criteria": name, "explain": coverage.explain(), **rows})
        yield {"cases": done}


def worst(found: Sequence[dict[str, Any]], count: int) -> list[tuple[str, str]]:
    """The cases whose ratio lies furthest above the forward pass, of all that some runs have measured."""
    cases = []
    for results in found:
        places = [*results.get("small", {}).get("sizes", {}).items(), ("half", results.get("half", {}))]
        for where, rows in [*places, *results.get("wide", {}).get("models", {}).items()]:
            known = rows.get("criteria", {})
            cases += [(row["auto"]["ratio"], where, name) for name, row in known.items() if "auto" in row]
    return [case[1:] for case in sorted(cases, reverse=True)[:count]] or [("32", TOGETHER_SMALL)]


def _run_of(found: Subject, where: str, full: bool) -> Run:
    if where == "half":
        return half_run(found, 1000 if full else 10, 8)
    if not where.isdigit():
        name, _, precision = where.rpartition(", ")
        return wide_run(name, found.device, full, 8, getattr(torch, precision))
    known = taught(found.model, found.training[:1000].split(100))
    return Run(found.model, batches_of(found, int(where), 8), alone_and_together(known))


def _running(run: Run, chosen: list[Any], rule: Any) -> tuple[nc.Coverage, Callable[[], None]]:
    coverage, index = nc.Coverage(run.model, chosen, cuda_graph=rule), iter(range(1 << 30))
    return coverage, lambda: coverage.update(run.batches[next(index) % len(run.batches)])


def _counted(run: Callable[[], object], device: torch.device) -> dict[str, int | None]:
    """What the device does, kernels, copies and fills, and how many calls of the host start it."""
    if device.type != "cuda":
        run()
        return {"operations": None, "started by the host": None}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize(device)
    events = list(seen.events())
    return {
        "operations": sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events),
        "started by the host": sum(event.name.startswith(_STARTS) for event in events),
    }


def _profiled(run: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """The longest operations of three batches on the device and on the host, microseconds a batch."""
    on_gpu, count = device.type == "cuda", 3
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as seen:
        for _ in range(count):
            run()
        if on_gpu:
            torch.cuda.synchronize(device)
    averages = seen.key_averages()
    found: dict[str, Any] = {}
    for place, kind, time in (
        ("host", torch.autograd.DeviceType.CPU, "self_cpu_time_total"),
        ("device", torch.autograd.DeviceType.CUDA, "self_device_time_total"),
    ):
        rows = [
            (getattr(event, time) / count, event.count / count, event.key)
            for event in averages
            if event.device_type == kind
        ]
        found[f"{place} microseconds"] = sum(row[0] for row in rows)
        found[place] = [
            {"name": name[:90], "microseconds": spent, "calls": calls}
            for spent, calls, name in sorted(rows, reverse=True)[:_MOST_ROWS]
            if spent
        ]
    return found
