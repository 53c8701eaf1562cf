"""``diversity-generative``: inputs of a class-conditional generator, fewer of each class or of fewer classes."""

from __future__ import annotations

from typing import Any

import torch

from neuralcov_lab import zoo
from neuralcov_lab.experiments.cells import Cell
from neuralcov_lab.experiments.panel import Panel, Reading
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import table_settings
from neuralcov_lab.experiments.subjects import trained
from neuralcov_lab.experiments.suites import Latents, generative_schemes, normal_latents
from neuralcov_lab.experiments.toys import toy_generator
from neuralcov_lab.experiments.workbench import Workbench

NAME = "diversity-generative"
# The distances of CC that the paper takes for this generator.
DISTANCES = (50, 100, 200)


def plan(scale: Scale) -> list[Cell]:
    """All schemes, run by run."""
    return [
        Cell(
            name=f"{NAME}.schemes" + (f".run{run}" if run else ""),
            experiments=(NAME,),
            compute=schemes,
            parameters={"run": run},
            work=2.2 * scale.generated,
            rank=52 if run == 0 else 80 + run,
            kind="suite generator",
        )
        for run in range(scale.runs)
    ]


def schemes(bench: Workbench, run: int) -> dict[str, Any]:
    """Values on their own: the training inputs of a generator are drawn from the very distribution of ``Normal``."""
    net, panel = _network(bench), _panel(bench)
    whole = _latents(bench, net, run + 1)
    found = {name: panel.measure(suite) for name, suite in generative_schemes(whole, net.num_classes).items()}
    return {
        "suites": found,
        "training": {"inputs": panel.training_inputs, "values": panel.training_values},
        "layers": len(panel.layout),
        "neurons": panel.layout.neurons,
    }


def _network(bench: Workbench) -> zoo.Generator:
    def make() -> zoo.Generator:
        toy = bench.scale.generator == "toy"
        net = toy_generator() if toy else trained("generator", bench.scale.generator)
        assert isinstance(net, zoo.Generator)
        return net.to(bench.device).eval()

    return bench.prepare("generator", make)


def _latents(bench: Workbench, net: zoo.Generator, number: int) -> Latents:
    random = bench.generator(23, number)
    return normal_latents(bench.scale.generated, net.num_classes, net.linear.in_features, bench.scale.batch, random)


def _panel(bench: Workbench) -> Panel:
    """Calibrated on other inputs of the same kind; surprise goes by the class that was asked for."""
    net = _network(bench)
    settings = table_settings(DISTANCES, by="label")
    return bench.prepare(
        "panel of the generator",
        lambda: Panel.calibrated(
            net,
            settings,
            _latents(bench, net, 0),
            chunk=bench.scale.chunk,
            reading=Reading(predictions=False, unpack=_conditioned),
        ),
    )


def _conditioned(item: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, torch.Tensor]:
    """Noise and class are both inputs; the class is the label too."""
    noise, labels = item
    return (noise, labels), labels
