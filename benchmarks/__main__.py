"""``python -m benchmarks``: measure, write JSON. ``python -m benchmarks report FILE…``: write docs/performance.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import assess, growth, host, judging, operations, scale, small, states, wide
from benchmarks.subjects import CRITERIA, FORMATS, JUDGING, Subject, calibrated, subject, with_paths

# In the order of their worth: a run may be cut short. Those that profile come after those that time small batches,
# since a profiler slows down what follows.
_PARTS = (
    "small", "half", "wide", "lcc", "assess", "growth", "gain", "admit", "calibration", "states", "formats",
    "operations", "profiles", "agreement", "naive",
)  # fmt: skip
_WITHOUT_SUBJECT = {"growth", "host", "wide", "scale", "scale-disk"}
_RULES: dict[str, Any] = {"auto": "auto", "False": False, "True": True}


def main() -> None:
    """Read the command line and run the chosen parts."""
    if len(sys.argv) > 1 and sys.argv[1] == "report":
        # Imports matplotlib, which a machine that only measures need not have.
        from benchmarks import report

        report.write([Path(path) for path in sys.argv[2:]])
        return
    options = _options()
    device = torch.device(options.device)
    results: dict[str, Any] = {"machine": _machine(device), "full": options.full, "label": options.label}
    started = time.perf_counter()
    parts = options.parts.split(",")
    found = None
    if set(parts) - _WITHOUT_SUBJECT:
        sizes = (10_000, 50_000) if options.full else (500, 500)
        found = subject(device, *sizes, options.weights, options.images)
        results["real network and images"] = found.real
    failed = False
    for part in parts:
        start = time.perf_counter()
        if start - started > options.seconds:
            print(f"{part}: no time left", flush=True)
            continue
        try:
            # Every row is written as soon as it is known: a run that is cut short keeps what it measured.
            for rows in _run(part, found, device, options, results):
                results[part] = {**rows, "wall seconds of this part": time.perf_counter() - start}
                _write(options.output, results)
        except Exception:
            # The parts do not depend on each other.
            traceback.print_exc()
            failed = True
        print(f"{part}: {time.perf_counter() - start:.1f} s", flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    sys.exit(1 if failed else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--full", action="store_true", help="the sizes of the tables; else small ones for a CPU")
    parser.add_argument("--weights", type=Path, help="weights of a trained ResNet50 for CIFAR-10 (safetensors)")
    parser.add_argument("--images", type=Path, help="CIFAR-10 images: .npy bytes (n, 3, 32, 32), or a picture of all")
    parser.add_argument(
        "--parts", default=",".join(_PARTS), help="also host (of a CPU), scale, scale-disk; measured in this order"
    )
    parser.add_argument("--repeats", type=int, help="timed runs of each criterion; the median counts")
    parser.add_argument("--rules", default="auto,False", help="cuda_graph= at small batches, by commas")
    parser.add_argument("--batches", default="32,100,256", help="sizes of small batches")
    parser.add_argument("--size", type=int, help="of large batches; 1,000 by default, on a CPU 100")
    parser.add_argument("--earlier", type=Path, nargs="*", default=(), help="results whose worst cases to profile")
    parser.add_argument("--curves", default="", help="of growth, measured in this order; all by default")
    parser.add_argument("--label", default="", help="'before' for figures of an earlier version, beside others")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further part after so many")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    return parser.parse_args()


def _write(path: Path, results: dict[str, Any]) -> None:
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(beside, path)


_taught: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _run(
    part: str, found: Subject | None, device: torch.device, options: argparse.Namespace, results: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    full, repeats = options.full, options.repeats or (2 if options.full else 1)
    rules = tuple(_RULES[rule] for rule in options.rules.split(","))
    if part == "host":
        return host.small_networks(7 if full else 2)
    if part == "wide":
        return wide.wide(device, full, rules, repeats)
    if part == "growth":
        return growth.growth(device, full, tuple(filter(None, options.curves.split(","))))
    if part == "scale":
        size = (1_000_000, 27_560, 1_000, 50_000, 115 << 30) if full else (4_000, 500, 20, 500, 16 << 30)
        return scale.scale(device, *size)
    if part == "scale-disk":
        tests = 10_000 if device.type == "cuda" else 500
        size = (250_000, 27_560, 1_000, tests, 1 << 30) if full else (4_000, 500, 20, 500, 1 << 20)
        return scale.scale(device, *size)
    assert found is not None

    def taught(names: set[str]) -> tuple[Any, ...]:
        key = tuple(sorted(names))
        if key not in _taught:
            chosen = tuple(criterion for criterion in CRITERIA if criterion.name in names)
            _taught[key] = calibrated(found, chosen, 1000 if full else 100)
        return _taught[key]

    everything = {criterion.name for criterion in CRITERIA}
    earlier = [json.loads(path.read_text()) for path in options.earlier]
    sizes = tuple(int(size) for size in options.batches.split(","))
    large, count = options.size or (1000 if full else 100), 100 if full else 8
    runs: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "small": lambda: small.small(found, sizes, count, rules, repeats),
        "half": lambda: small.half(found, *((1000, 40) if full else (10, 8)), rules, repeats),
        "lcc": lambda: _lcc(found, taught({"LCC"}), full, large, repeats),
        "operations": lambda: operations.operations(found, 100 if full else 32, rules),
        "profiles": lambda: operations.profiles(found, operations.worst([results, *earlier], 3), full),
        "calibration": lambda: assess.calibration(found, CRITERIA),
        "assess": lambda: assess.assess(found, (*taught(everything), with_paths(found)), large, repeats),
        "naive": lambda: assess.naive_forms(found, 100, 50 if full else 20),
        "formats": lambda: assess.formats(found, taught(FORMATS), large, repeats),
        "agreement": lambda: assess.agreement(found, CRITERIA, 500 if full else 100),
        "gain": lambda: judging.gains(
            found, taught(JUDGING), (1, 64, 1024, 16384) if full else (1, 16), 10_000 if full else 200
        ),
        "admit": lambda: judging.admissions(found, taught(everything), large, 2048 if full else 16),
        "states": lambda: states.states(found, taught(everything), 2_000 if full else 200),
    }
    return runs[part]()


def _lcc(
    found: Subject, criteria: tuple[Any, ...], full: bool, batch_size: int, repeats: int
) -> Iterator[dict[str, Any]]:
    part: dict[str, Any] = {}
    for rows in judging.gains(found, criteria, (64, 1024, 16384) if full else (16, 256), 10_000 if full else 200):
        part["judging"] = rows
        yield part
    # Wide layers alone take seconds, on a CPU too.
    part["wide"] = wide.wide_layers(found.device, full or found.device.type == "cpu")
    yield part
    for rows in assess.assess(found, criteria, batch_size, repeats):
        part["assess"] = rows
        yield part


def _machine(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    return {
        "device": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "matmul tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn tf32": torch.backends.cudnn.allow_tf32,
    }


main()
