"""``diversity-generative``: inputs of a class-conditional generator, fewer of each class or of fewer classes."""

from __future__ import annotations

from typing import Any

import torch

from neuralcov_lab import zoo
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import CalibratedCriteria, ModelReader
from neuralcov_lab.experiments.scales import TOY, Scale
from neuralcov_lab.experiments.settings import panel_settings
from neuralcov_lab.experiments.subjects import trained
from neuralcov_lab.experiments.suites import Latents, generative_schemes, normal_latents
from neuralcov_lab.experiments.toys import toy_generator

NAME = "diversity-generative"
# The distances of CC that the paper takes for this generator.
DISTANCES = (50, 100, 200)


def plan(scale: Scale) -> list[Job]:
    """Plan all schemes, run by run."""
    return [
        Job(
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


def schemes(context: ExperimentContext, run: int) -> dict[str, Any]:
    """Values on their own: the training inputs of a generator are drawn from the very distribution of ``Normal``."""
    net, criteria = _network(context), _criteria(context)
    whole = _latents(context, net, run + 1)
    found = {name: criteria.measure(suite) for name, suite in generative_schemes(whole, net.num_classes).items()}
    return {
        "suites": found,
        "training": {"inputs": criteria.training_inputs, "values": criteria.training_values},
        "layers": len(criteria.layout),
        "neurons": criteria.layout.neurons,
    }


def _network(context: ExperimentContext) -> zoo.Generator:
    def make() -> zoo.Generator:
        toy = context.scale.generator == TOY
        net = toy_generator() if toy else trained("generator", context.scale.generator)
        assert isinstance(net, zoo.Generator)
        return net.to(context.device).eval()

    return context.prepare("generator", make)


def _latents(context: ExperimentContext, net: zoo.Generator, number: int) -> Latents:
    random = context.generator(23, number)
    return normal_latents(context.scale.generated, net.num_classes, net.linear.in_features, context.scale.batch, random)


def _criteria(context: ExperimentContext) -> CalibratedCriteria:
    """Calibrated on other inputs of the same kind; surprise goes by the class that was asked for."""
    net = _network(context)
    settings = panel_settings(context.companion, DISTANCES, by="label")
    return context.prepare(
        ("criteria on the generator", context.companion),
        lambda: CalibratedCriteria.learn(
            net,
            settings,
            _latents(context, net, 0),
            chunk=context.scale.chunk,
            reader=ModelReader(predictions=False, unpack=_conditioned),
        ),
    )


def _conditioned(item: tuple[torch.Tensor, torch.Tensor]) -> tuple[Any, torch.Tensor]:
    """Noise and class are both inputs; the class is the label too."""
    noise, labels = item
    return (noise, labels), labels
