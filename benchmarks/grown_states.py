"""How large states are: bytes after so many inputs, for layers of some widths.

    python -m benchmarks.grown_states --widths 4096 11008 --inputs 500 1000

States of fixed size are built on the meta device, which allocates nothing; those that grow are filled with random
inputs, the worst case, where every input shows kinds of its own.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import torch
from torch import Tensor

import neuralcov as nc
from neuralcov.core.layout import Layout
from neuralcov.core.records import flatten

FIXED: tuple[Any, ...] = (
    nc.NC(0.75),
    nc.KMNC(100),
    nc.KMNC(100, errors=True),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(10),
    nc.NLC(memory="1TiB"),
    nc.LVC(),
)
GROWING: tuple[Any, ...] = (
    nc.TKNP(10),
    nc.TKNP(10, sketch=4096),
    nc.LCC(),
    nc.LCC(sketch=4096),
    nc.SS(),
    nc.CC(10),
    nc.DSC(0.1),
)


def size_of(state: Any) -> int:
    """Return the bytes of a state's tensors, as files hold them: booleans as bits."""
    tensors: dict[str, Tensor] = {}
    flatten(state, "state", tensors)
    return sum(-(-t.numel() // 8) if t.dtype == torch.bool else t.numel() * t.element_size() for t in tensors.values())


def grown(criterion: Any, width: int, inputs: int, layers: int) -> int:
    """Return the size of a state after random inputs, which nothing makes alike."""
    widths = {f"layer{index}": width for index in range(layers)}
    generator = torch.Generator().manual_seed(0)

    def batch(count: int) -> dict[str, Any]:
        found = {name: torch.randn(count, width, generator=generator) for name in widths}
        classes = torch.randint(10, (count,), generator=generator)
        return {"activations": found, "labels": classes, "predictions": classes}

    cov = nc.Coverage.of_layers(widths, [criterion])
    if criterion.learns:
        cov.calibrate(**batch(200))
    for start in range(0, inputs, 250):
        cov.update(**batch(min(250, inputs - start)))
    return size_of(cov.states[0])


def main() -> None:
    """Print sizes."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--widths", type=int, nargs="+", default=[4096, 11008])
    parser.add_argument("--inputs", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--layers", type=int, default=2)
    chosen = parser.parse_args()
    for width in chosen.widths:
        layout = Layout({"layer": width}, torch.device("meta"))
        for criterion in FIXED:
            print(f"{criterion.name:28} one layer of {width:6}: {size_of(criterion.init(layout)):>15,} bytes")
    for criterion in GROWING:
        for width in chosen.widths[:1]:
            sizes = {count: grown(criterion, width, count, chosen.layers) for count in chosen.inputs}
            print(f"{criterion.name:28} {chosen.layers} layers of {width:6}: {sizes}")


if __name__ == "__main__":
    main()
