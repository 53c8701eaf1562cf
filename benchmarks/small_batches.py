"""``python -m benchmarks.small_batches``: batches of 32 to 256, and half precision with channels last at 1,000.

Criteria alone and together, by plain calls and recorded, as multiples of the plain forward pass of the same format and
run; how many operations each starts on a GPU per batch; and what ``explain`` says. Uses nothing but what coverages have
had for long, so that it runs with an earlier tree as well, for figures before and after.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import neuralcov as nc
from neuralcov_lab import zoo

ALONE = ("NC(0.75)", "KMNC(100)", "NBC", "SNAC", "TKNC(10)", "LCC", "NLC", "LVC")


def criteria() -> list[Any]:
    """Return new ones."""
    return [nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10), nc.LCC(), nc.NLC(), nc.LVC()]


def taught(model: Any, training: torch.Tensor) -> dict[str, Any]:
    """Return the criteria by name, after calibration, and all of fixed size together."""
    coverage = nc.Coverage(model, criteria())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coverage.calibrate(training.split(500), progress=False)
    return {criterion.name: criterion for criterion in coverage.criteria}


def clock(device: torch.device) -> float:
    """Return seconds, once the device has done all it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def timed(run: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Return the seconds of some runs, after one that warms up."""
    run()
    found = []
    for _ in range(repeats):
        start = clock(device)
        run()
        found.append(clock(device) - start)
    return found


def assess(model: Any, chosen: list[Any], inputs: torch.Tensor, batch: int, rule: Any) -> nc.Coverage:
    """Observe all inputs in one block."""
    coverage = nc.Coverage(model, chosen, cuda_graph=rule)
    with coverage.tap(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in inputs.split(batch):
            coverage.update(part)
        coverage.values()
    return coverage


def operations(run: Callable[[], object], device: torch.device) -> int | None:
    """Count what a run starts on a GPU: kernels, copies and fills."""
    if device.type != "cuda":
        return None
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize(device)
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def main() -> None:
    """Measure and write JSON, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--inputs", type=int, default=3200)
    parser.add_argument("--batches", default="32,100,256")
    parser.add_argument("--rules", default="False,auto", help="values of cuda_graph=, by commas")
    parser.add_argument("--only", default=",".join((*ALONE, "fixed")))
    parser.add_argument("--half", type=int, default=8000, help="inputs of half precision, channels last; 0 for none")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("small_batches.json"))
    options = parser.parse_args()
    device = torch.device(options.device)
    rules = [{"False": False, "True": True}.get(rule, rule) for rule in options.rules.split(",")]
    torch.manual_seed(0)
    model = zoo.resnet50().eval().to(device)
    inputs = torch.rand(options.inputs, 3, 32, 32).sub(0.45).div(0.25).to(device)
    training = inputs[:1000] + 0.05 * torch.randn_like(inputs[:1000])
    found: dict[str, Any] = {"torch": torch.__version__, "rows": []}
    wanted = options.only.split(",")

    def rows(name: str, model: Any, known: dict[str, Any], inputs: torch.Tensor, batch: int) -> None:
        def forward() -> None:
            with torch.no_grad():
                for part in inputs.split(batch):
                    model(part)

        plain = timed(forward, device, options.repeats)
        row: dict[str, Any] = {"format": name, "batch": batch, "forward": plain, "criteria": {}}
        row["forward operations"] = operations(lambda: model(inputs[:batch]), device)
        found["rows"].append(row)
        for one in wanted:
            chosen = list(known.values()) if one == "fixed" else [known[one]]
            entry: dict[str, Any] = {}
            for rule in rules:
                seconds = timed(
                    lambda chosen=chosen, rule=rule: assess(model, chosen, inputs, batch, rule), device, options.repeats
                )
                entry[str(rule)] = seconds
                ratio = statistics.median(seconds) / statistics.median(plain)
                print(f"{name} {batch} {one} {rule}: {ratio:.2f} × {statistics.median(plain):.3f} s", flush=True)
            if name == "float32" and batch == 100:
                coverage = nc.Coverage(model, chosen, cuda_graph=False)
                with coverage.tap():
                    coverage.update(inputs[:batch])
                    count = operations(lambda c=coverage: c.update(inputs[:batch]), device)
                entry["operations"] = count
            values = [assess(model, chosen, inputs, batch, rule) for rule in rules]
            entry["values"] = [coverage.values(warn=False) for coverage in values]
            if hasattr(values[-1], "explain"):
                entry["explain"] = values[-1].explain()
            row["criteria"][one] = entry
            options.output.write_text(json.dumps(found, indent=1) + "\n")

    known = taught(model, training)
    for batch in map(int, filter(None, options.batches.split(","))):
        rows("float32", model, known, inputs, batch)
    if options.half:
        half = model.half().to(memory_format=torch.channels_last)
        many = inputs.repeat(-(-options.half // len(inputs)), 1, 1, 1)[: options.half]
        many = many.half().contiguous(memory_format=torch.channels_last)
        rows("float16, channels last", half, taught(half, many[:1000]), many, 1000)
    sys.exit(0)


if __name__ == "__main__":
    main()
