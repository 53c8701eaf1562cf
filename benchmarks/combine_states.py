"""Merge many large state files: CPU seconds and the most memory that ``neuralcov combine`` takes.

    python benchmarks/combine_states.py --count 64 --folder /tmp/states

writes states of NLC(rule=all) on layers as wide as ResNet50's (Σm² = 28.2 M, 226 MB each), and combines them in a
process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import neuralcov as nc


def resnet50_widths() -> dict[str, int]:
    """Return the widths of the 54 layers of ResNet50 for 10 classes, in execution order."""
    widths = [64]
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            widths += [width, width, 4 * width] + ([4 * width] if block == 0 else [])
    return {f"layer{index}": width for index, width in enumerate([*widths, 10])}


def write(folder: Path, count: int) -> None:
    """Write so many states of different inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    widths = resnet50_widths()
    for number in range(count):
        path = folder / f"part-{number:03}.ncov"
        if path.is_file():
            continue
        generator = torch.Generator().manual_seed(number)
        cov = nc.Coverage.of_layers(widths, [nc.NLC(rule="all")])
        cov.update(activations={name: torch.randn(8, width, generator=generator) for name, width in widths.items()})
        cov.save(path)


def main() -> None:
    """Write states and combine them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    # In a process of its own: one that is started here begins with the memory that this one has.
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(chosen.folder, chosen.count))
    writer.start()
    writer.join()
    size = (chosen.folder / "part-000.ncov").stat().st_size
    files = [str(chosen.folder / f"part-{number:03}.ncov") for number in range(chosen.count)]
    started = time.perf_counter()
    command = [sys.executable, "-m", "neuralcov", "combine", *files, "-o", str(chosen.folder / "all.ncov")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, "combine failed"
    print(
        f"{chosen.count} states of {size / 1e6:.0f} MB: {used.ru_utime + used.ru_stime:.1f} CPU s, "
        f"{time.perf_counter() - started:.1f} s, {used.ru_maxrss / 1e3:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
