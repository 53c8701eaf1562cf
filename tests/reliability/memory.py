"""Run as a program: a million inputs through every criterion, and what memory that takes.

    python -m tests.reliability.memory --inputs 1000000

Every criterion measures the same inputs, each of them new, in batches of 1,000. Most states have a fixed size. TKNP,
LCC and SS keep what they have met, and grow by kinds: here by as many as these small layers can show.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import sys
import warnings

import torch

import neuralcov as nc

BATCH, WIDTHS = 1000, {"fc1": 6, "fc2": 5, "out": 3}
# Kinds of their own for nearly every input: memory grows by design.
GROWING = ("TKNP", "LCC", "SS", "LSC", "DSC", "MDSC", "CC")


def batch(number):
    random = torch.Generator().manual_seed(number)
    labels = torch.arange(BATCH) % 3
    layers = {name: torch.randn(BATCH, width, generator=random) for name, width in WIDTHS.items()}
    relevance = {name: rows.abs() for name, rows in layers.items()}
    return nc.Activations(layers=layers, labels=labels, predictions=labels, relevance=relevance)


def resident():
    """Return the resident memory in MiB, after the allocator has given back what is free."""
    gc.collect()
    with contextlib.suppress(OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def criteria():
    return [
        nc.NC(0.5), nc.KMNC(10), nc.NBC(), nc.SNAC(), nc.TKNC(2), nc.TKNP(2), nc.CC(1.5), nc.NLC(), nc.NLC(rule="all"),
        nc.LVC(), nc.SS(), nc.LCC(), nc.LSC(10), nc.DSC(0.1), nc.MDSC(1), nc.NPC(clusters=2, buckets=10),
    ]  # fmt: skip


def measure(criterion, inputs, every):
    """Return resident memory before, and after every so many inputs."""
    coverage = nc.Coverage.of_layers(WIDTHS, [criterion])
    coverage.calibrate(activations=[batch(-1 - number) for number in range(1)])
    coverage.update(activations=batch(10**9))
    seen = [round(resident(), 1)]
    for number in range(inputs // BATCH):
        coverage.update(activations=batch(number))
        if (number + 1) * BATCH % every == 0:
            seen.append(round(resident(), 1))
    return seen


def main(inputs, every):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found, grown = {}, []
    for criterion in criteria():
        seen = measure(criterion, inputs, every)
        found[criterion.name] = seen
        # From the first step on, since caches fill up to there.
        flat = seen[-1] - seen[1] < 8
        if not flat and not criterion.name.startswith(GROWING):
            grown.append(criterion.name)
        print(
            f"{criterion.name:28} {seen[0]:8.1f} MiB, then {', '.join(f'{step:.1f}' for step in seen[1:])}", flush=True
        )
    return {"inputs": inputs, "MiB": found, "grown": grown}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=100_000)
    chosen = parser.parse_args()
    found = main(chosen.inputs, chosen.every)
    print(json.dumps(found))
    sys.exit(bool(found["grown"]))
