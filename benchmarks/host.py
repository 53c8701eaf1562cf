"""Small networks on a CPU, where starting an operation takes as long as doing it; and what a command takes to start.

All by CPU time of one thread. Model and measuring take turns; of each the least of some rounds counts, since other work
on the machine only ever adds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import neuralcov as nc
from benchmarks.timing import clock
from neuralcov_lab import zoo

SIX = "NC, KMNC, SNAC, TKNC, NLC, LCC together"
# At most: milliseconds a batch over the forward pass, or multiples of it.
TARGETS = {SIX: ("ms", 1.0), "LSC(10)": ("×", 3.0), "DSC(0.1)": ("×", 3.0)}
START_TARGETS = {"import neuralcov": 0.4, "neuralcov --help": 0.5}
_BATCH = 32
_TRACES = 2_000
_CPU = torch.device("cpu")


def networks() -> dict[str, tuple[nn.Module, Callable[[int], Tensor]]]:
    """The networks, and what makes inputs for them."""
    torch.manual_seed(0)
    return {
        "digits": (zoo.DigitsNet().eval(), lambda size: torch.rand(size, 1, 8, 8)),
        "LSTM, 20 steps of 32": (SmallLSTM().eval(), lambda size: torch.randn(size, 20, 8)),
    }


class SmallLSTM(nn.Module):
    """A recurrent network as people use for series of measurements: 21 layers, 644 neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 32, batch_first=True)
        self.fc = nn.Linear(32, 4)

    def forward(self, series: Tensor) -> Tensor:
        """Return logits of four classes."""
        return self.fc(self.lstm(series)[0][:, -1])  # type: ignore[no-any-return]


def criteria() -> dict[str, list[Any]]:
    """The criteria together, each of them alone, and two that search training traces."""
    six = [nc.NC(0.75), nc.KMNC(100), nc.SNAC(), nc.TKNC(10), nc.NLC(), nc.LCC()]
    return {SIX: six, **{criterion.name: [criterion] for criterion in (*six, nc.LSC(10), nc.DSC(0.1))}}


def small_networks(rounds: int) -> Iterator[dict[str, Any]]:
    """Milliseconds a batch of 32 of each network alone, and with each set of criteria."""
    rows: dict[str, Any] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for network, (model, make) in networks().items():
            batches, training = [make(_BATCH) for _ in range(120)], [make(100) for _ in range(_TRACES // 100)]
            for name, chosen in criteria().items():
                alone, measured = _turns(model, batches, training, chosen, rounds)
                rows.setdefault(network, {})[name] = {"forward ms": alone, "ms": measured}
                yield {"batch": _BATCH, "traces": _TRACES, "networks": rows}
        yield {"batch": _BATCH, "traces": _TRACES, "networks": rows, "start": starting(rounds)}
    finally:
        torch.set_num_threads(threads)


def _turns(
    model: nn.Module, batches: list[Tensor], training: list[Tensor], chosen: list[Any], rounds: int
) -> tuple[float, float]:
    coverage = nc.Coverage(model, chosen)

    def forward() -> None:
        with torch.no_grad():
            for batch in batches:
                model(batch)

    def measure() -> None:
        with coverage.tap():
            for batch in batches:
                coverage.update(batch)
        coverage.values()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        coverage.calibrate(training, progress=False)
        found: dict[Callable[[], None], list[float]] = {forward: [], measure: []}
        for _ in range(rounds + 1):
            for way, seconds in found.items():
                start = clock(_CPU)
                way()
                seconds.append(clock(_CPU) - start)
    alone, measured = (1e3 * min(seconds[1:]) / len(batches) for seconds in found.values())
    return alone, measured


def starting(rounds: int) -> dict[str, float]:
    """CPU seconds of what every command begins with, beside Python and torch alone."""
    ways = {
        "python": ["-c", "pass"],
        "import torch": ["-c", "import torch"],
        "import neuralcov": ["-c", "import neuralcov"],
        "import torch, neuralcov, Coverage": ["-c", "import torch, neuralcov; neuralcov.Coverage, neuralcov.NLC"],
        "neuralcov --help": ["-m", "neuralcov", "--help"],
        "neuralcov --version": ["-m", "neuralcov", "--version"],
    }
    return {name: min(_child_seconds(arguments) for _ in range(rounds)) for name, arguments in ways.items()}


def _child_seconds(arguments: list[str]) -> float:
    before = os.times()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
