"""``python -m benchmarks.listening``: seconds of ours within a pass that is heard, beside those of ``assess``.

Three ways to run the same batches take turns: the model alone, ``assess``, and the model within a block that listens.
What is ours is each way's time less the model's alone. On a CPU CPU time, on a GPU (``--device cuda``) the time that
passes; the sums of all turns, so that warming up counts for none of the three. The target is a ratio of the two ways'
times within 5 %.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import neuralcov as nc
from benchmarks.timing import clock
from neuralcov_lab import zoo

CRITERIA = (nc.NC(0.75), nc.KMNC(100), nc.TKNC(10), nc.NLC(), nc.LCC())


def small_network() -> nn.Module:
    """Return a network for digits, whose pass takes well under a millisecond."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, 10),
    )


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "small network, batch 32": (small_network, (1, 8, 8), 32, 100),
    "MobileNetV2, batch 32": (zoo.mobilenet_v2, (3, 32, 32), 32, 4),
    "ResNet50, batch 50": (zoo.resnet50, (3, 32, 32), 50, 2),
}
ON_A_GPU: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, int]] = {
    "small network, batch 32": (small_network, (1, 8, 8), 32, 100),
    "MobileNetV2, batch 32": (zoo.mobilenet_v2, (3, 32, 32), 32, 30),
    "ResNet50, batch 100": (zoo.resnet50, (3, 32, 32), 100, 20),
    "ResNet50, batch 1,000": (zoo.resnet50, (3, 32, 32), 1000, 5),
}


def compare(model: nn.Module, batches: list[Tensor], turns: int) -> dict[str, float]:
    """Return the seconds of each way to run the batches, summed over the turns.

    Args:
        model: in eval mode.
        batches: of inputs.
        turns: how often each way is taken.
    """
    device = batches[0].device
    assessed, heard = (nc.Coverage(model, CRITERIA, cuda_graph=False) for _ in range(2))
    for coverage in (assessed, heard):
        coverage.calibrate(batches, progress=False)

    def alone() -> None:
        with torch.no_grad():
            for batch in batches:
                model(batch)

    def assess() -> None:
        assessed.reset()
        assessed.assess(batches, progress=False)

    def listen() -> None:
        heard.reset()
        with heard.listen():
            alone()

    ways: dict[str, Callable[[], Any]] = {"alone": alone, "assess": assess, "listen": listen}
    seconds = dict.fromkeys(ways, 0.0)
    for turn in range(turns + 1):
        # Each way comes first, second and third equally often.
        order = list(ways)[turn % 3 :] + list(ways)[: turn % 3]
        for name in order:
            gc.collect()
            start = clock(device)
            ways[name]()
            if turn:  # the first one warms up
                seconds[name] += clock(device) - start
    if heard.values() != assessed.values():
        raise AssertionError(f"heard {heard.values()}, assessed {assessed.values()}")
    return seconds


def main() -> None:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| network | forward, s | assess, s | listening, s | ours of assess | ours of listening | listening / assess |"
    )
    print("|---|---|---|---|---|---|---|")
    device = torch.device(options.device)
    for name, (build, shape, size, count) in (ON_A_GPU if device.type == "cuda" else SUBJECTS).items():
        torch.manual_seed(0)
        model = build().eval().to(device)
        batches = [torch.rand(size, *shape).to(device) for _ in range(count)]
        found = compare(model, batches, options.turns)
        alone, assess, listen = (found[way] / options.turns for way in ("alone", "assess", "listen"))
        shares = [f"{100 * (total - alone) / total:.1f} %" for total in (assess, listen)]
        print(f"| {name} | {alone:.4f} | {assess:.4f} | {listen:.4f} | {' | '.join(shares)} | {listen / assess:.3f} |")


if __name__ == "__main__":
    main()
