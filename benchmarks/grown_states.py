"""How large states are: bytes after so many inputs, for layers of some widths, beside what the formula says.

    python -m benchmarks.grown_states --widths 4096 11008 --inputs 1000 --layers 1 --skip LVC
    python -m benchmarks.grown_states --widths 64 --inputs 1000000 --layers 2 --skip CC

Inputs are random, the worst case: next to every one shows kinds of its own. ``file`` is what files hold, a boolean as
a bit; ``memory`` what the state takes while it grows, ``formula`` what ``neuralcov layers --cost`` says that it takes
at the most. ``--skip`` leaves out what would take too long: CC compares every input with all before.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from neuralcov.core.cost import Workload, cost_of, tensor_bytes
from neuralcov.core.layout import Layout
from neuralcov.core.records import flatten

CRITERIA: tuple[Any, ...] = (
    nc.NC(0.75),
    nc.KMNC(100),
    nc.KMNC(100, errors=True),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(10),
    nc.TKNP(10),
    nc.TKNP(10, sketch=4096),
    nc.SS(),
    nc.CC(10),
    nc.LSC(10),
    nc.DSC(0.1),
    nc.MDSC(10),
    nc.NPC(0.7),
    nc.NLC(),
    nc.NLC(sketch=1024),
    nc.LVC(),
    nc.LVC(sketch=1024),
    nc.LCC(),
    nc.LCC(sketch=4096),
)
TRAINING, NUMBERS, CLASSES = 200, 1 << 20, 10


def file_bytes(state: Any) -> int:
    """Return the bytes of a state's tensors, as files hold them: booleans as bits."""
    tensors: dict[str, Tensor] = {}
    flatten(state, "state", tensors)
    return sum(-(-t.numel() // 8) if t.dtype == torch.bool else t.numel() * t.element_size() for t in tensors.values())


def grown(criterion: Any, widths: dict[str, int], inputs: int) -> Any:
    """Return a criterion's state after random inputs, which nothing makes alike."""
    generator = torch.Generator().manual_seed(0)

    def batch(count: int) -> nc.Activations:
        found = {name: torch.randn(count, width, generator=generator) for name, width in widths.items()}
        classes = torch.randint(CLASSES, (count,), generator=generator)
        relevance = found if "relevance" in criterion.needs else None
        return nc.Activations(found, labels=classes, predictions=classes, relevance=relevance)

    cov = nc.Coverage.of_layers(widths, [criterion], memory="1TiB", keys="none")
    if criterion.learns:
        cov.calibrate(activations=batch(TRAINING))
    size = NUMBERS // max(widths.values())
    for start in range(0, inputs, size):
        cov.update(activations=batch(min(size, inputs - start)))
    return cov.states[0]


def main() -> None:
    """Print sizes as a table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--widths", type=int, nargs="+", default=[4096, 11008])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="names of criteria, as printed or without arguments")
    parser.add_argument("--skip", nargs="+", default=[], help="the same")
    chosen = parser.parse_args()
    print("| criterion | layers | inputs | file | memory | formula |")
    print("|---|--:|--:|--:|--:|--:|")
    for width in chosen.widths:
        widths = {f"layer{index}": width for index in range(chosen.layers)}
        layout = Layout(widths, torch.device("meta"))
        for criterion in CRITERIA:
            names = {criterion.name, type(criterion).__name__}
            if names & set(chosen.skip) or (chosen.only and not names & set(chosen.only)):
                continue
            state = grown(criterion, widths, chosen.inputs)
            cost = cost_of(criterion, layout, Workload(chosen.inputs, TRAINING, CLASSES))
            sizes = f"{file_bytes(state):,} | {tensor_bytes(state):,} | {'≤ ' if cost.grows else ''}{cost.state:,}"
            place = f"{chosen.layers} × {width:,} | {chosen.inputs:,}"
            errors = " with errors" if getattr(criterion, "errors", False) else ""
            print(f"| {criterion.name}{errors} | {place} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
