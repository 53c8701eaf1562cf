"""``python -m benchmarks``: measure, write JSON. ``python -m benchmarks report FILE…``: write docs/performance.md."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import assess, growth, judging, report, scale, states
from benchmarks.subjects import CRITERIA, FORMATS, JUDGING, Subject, calibrated, subject, with_paths


def main() -> None:
    """Read the command line and run the chosen parts."""
    if len(sys.argv) > 1 and sys.argv[1] == "report":
        report.write([Path(path) for path in sys.argv[2:]])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--full", action="store_true", help="the sizes of the tables; else small ones for a CPU")
    parser.add_argument("--weights", type=Path, help="weights of a trained ResNet50 for CIFAR-10 (safetensors)")
    parser.add_argument("--images", type=Path, help=".npy of CIFAR-10 images, unsigned bytes (n, 3, 32, 32)")
    parser.add_argument("--parts", default="assess,calibration,naive,formats,agreement,gain,admit,states,growth")
    parser.add_argument("--repeats", type=int, help="timed runs of each criterion; the median counts")
    parser.add_argument("--output", type=Path, default=Path("bench.json"))
    options = parser.parse_args()
    device = torch.device(options.device)
    results: dict[str, Any] = {"machine": _machine(device), "full": options.full}
    parts = options.parts.split(",")
    images = None if options.images is None else torch.from_numpy(np.load(options.images)).float() / 255
    sizes = (10_000, 50_000) if options.full else (500, 500)
    found = None
    if set(parts) - {"growth", "scale", "scale-disk"}:
        found = subject(device, *sizes, options.weights, images)
        results["real network and images"] = found.real
    failed = False
    for part in parts:
        start = time.perf_counter()
        try:
            # Every row is written as soon as it is known: a run that is cut short keeps what it measured.
            for rows in _run(part, found, device, options.full, options.repeats or (3 if options.full else 1)):
                results[part] = {**rows, "wall seconds of this part": time.perf_counter() - start}
                options.output.write_text(json.dumps(results, indent=1) + "\n")
        except Exception:
            # The parts do not depend on each other.
            traceback.print_exc()
            failed = True
        print(f"{part}: {time.perf_counter() - start:.1f} s", flush=True)
    sys.exit(1 if failed else 0)


_taught: dict[int, tuple[Any, ...]] = {}


def _run(part: str, found: Subject | None, device: torch.device, full: bool, repeats: int) -> Iterator[dict[str, Any]]:
    if part == "growth":
        return growth.growth(device, full)
    if part == "scale":
        size = (1_000_000, 27_560, 1_000, 50_000, 115 << 30) if full else (4_000, 500, 20, 500, 16 << 30)
        return scale.scale(device, *size)
    if part == "scale-disk":
        tests = 10_000 if device.type == "cuda" else 500
        size = (250_000, 27_560, 1_000, tests, 1 << 30) if full else (4_000, 500, 20, 500, 1 << 20)
        return scale.scale(device, *size)
    assert found is not None
    if part == "calibration":
        return assess.calibration(found, CRITERIA)
    if id(found) not in _taught:
        _taught[id(found)] = calibrated(found, CRITERIA, 1000 if full else 100)
    taught = _taught[id(found)]
    runs: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "assess": lambda: assess.assess(found, (*taught, with_paths(found)), (1000, 100) if full else (100,), repeats),
        "naive": lambda: assess.naive_forms(found, 100, 50 if full else 20),
        "formats": lambda: assess.formats(
            found, tuple(c for c in taught if c.name in FORMATS), 1000 if full else 100, repeats
        ),
        "agreement": lambda: assess.agreement(found, CRITERIA, 500 if full else 100),
        "gain": lambda: judging.gains(
            found,
            tuple(c for c in taught if c.name in JUDGING),
            (1, 64, 1024, 16384) if full else (1, 16),
            10_000 if full else 200,
        ),
        "admit": lambda: judging.admissions(
            found,
            taught,
            1000 if full else 100,
            2048 if full else 16,
        ),
        "states": lambda: states.states(found, taught, 2_000 if full else 200),
    }
    return runs[part]()


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
