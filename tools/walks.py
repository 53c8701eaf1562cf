"""Count the files of neuralcov that one call passes through, and the files and lines there are.

    PYTHONPATH=src python tools/walks.py

Counts with the same tracer on any tree: put another one's ``src`` first on PYTHONPATH to compare.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import neuralcov as nc

ROOT = Path(nc.__file__).parent
# The function that searches one wave, now and at commit 2eb6ce7.
WAVE = ("fuzz/search/wave.py:advance", "fuzz/engine.py:advance")
_NOT_COUNTED = ("zoo", "experiments")  # before they became a package of their own


def files_passed(call: Callable[[], Any], within: tuple[str, ...] = ()) -> list[str]:
    """Return the files of neuralcov that a call passes through, in order of first entry.

    Args:
        call: what is traced, in threads that it starts as well.
        within: count only what happens in the last call of one of these functions, ``file:name``.
    """
    seen: dict[str, None] = {}
    counting = not within

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal counting
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(str(ROOT)):
            return
        name = str(Path(frame.f_code.co_filename).relative_to(ROOT))
        if f"{name}:{frame.f_code.co_name}" in within:
            counting = event == "call"
            if counting:
                seen.clear()
        if counting and event == "call":
            seen.setdefault(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return list(seen)


def network() -> nn.Module:
    """Build three layers for images of 8×8."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)
    ).eval()


def walks(criterion: Any) -> dict[str, list[str]]:
    """Return the files of one batch measured, of gains, of a merge and of a save."""
    model, inputs = network(), torch.rand(16, 1, 8, 8)

    def measured(rows: slice) -> nc.Coverage:
        coverage = nc.Coverage(model, [criterion])
        coverage.assess([inputs[rows]], progress=False)
        return coverage

    coverage, other = measured(slice(0, 8)), measured(slice(8, 16))
    fresh = nc.Coverage(model, [criterion])
    fresh.assess([inputs[:4]], progress=False)  # what happens once only is not the walk of a batch
    with tempfile.TemporaryDirectory() as folder:
        return {
            "assess, one batch": files_passed(lambda: fresh.assess([inputs[4:12]], progress=False)),
            "gain": files_passed(lambda: coverage.gain(inputs[:4])),
            "merge": files_passed(lambda: coverage.merge(other)),
            "save": files_passed(lambda: coverage.save(Path(folder) / "suite.ncov")),
        }


def fuzz_wave(criterion: Any) -> list[str]:
    """Return the files of one wave of fuzzing, the last of several."""
    coverage = nc.Coverage(network(), [criterion])
    inputs, labels = torch.rand(16, 1, 8, 8), torch.arange(16) % 10
    fuzzer = nc.Fuzzer(coverage, inputs, labels, wave=16, seed=0)
    return files_passed(lambda: fuzzer.run(64, progress=False), within=WAVE)


def sizes() -> dict[str, int]:
    """Return numbers of files and lines, the median and the longest, without what became the lab."""
    files = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in _NOT_COUNTED]
    lines = {path: len(path.read_text().splitlines()) for path in files}
    own = [count for path, count in lines.items() if path.name != "__init__.py"]
    longest = max(lines, key=lambda path: lines[path])
    return {
        "files": len(files),
        "files that are no __init__.py": len(own),
        "lines": sum(lines.values()),
        "median": round(statistics.median(own)),
        f"longest, {longest.relative_to(ROOT)}": lines[longest],
    }


def main() -> None:
    """Print all counts; with -v the files themselves."""
    warnings.simplefilter("ignore")
    for name, count in sizes().items():
        print(f"{name}: {count:,}")
    for criterion in (nc.NC(0.75), nc.NLC()):
        for call, files in {**walks(criterion), "fuzz wave": fuzz_wave(criterion)}.items():
            print(f"{criterion.name}, {call}: {len(files)}")
            if "-v" in sys.argv:
                print("   ", " → ".join(name.removesuffix(".py") for name in files))


if __name__ == "__main__":
    main()
