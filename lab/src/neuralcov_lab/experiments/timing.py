"""``time``: what measuring costs, criterion by criterion, beside merely running the model."""

from __future__ import annotations

import time
from typing import Any

import torch

from neuralcov import Coverage
from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import AnyCriterion, named, single_settings
from neuralcov_lab.experiments.subjects import calibrated, image_subject

NAME = "time"
PLAIN = "the model alone"
_PATIENCE = 10.0


def plan(scale: Scale) -> list[Job]:
    """Plan the model alone, then every criterion, a job each."""
    network = scale.networks[0]
    names = [PLAIN, *(criterion.name for criterion in single_settings())]
    return [
        Job(
            name=f"{NAME}.{network}.{name.replace(' ', '-').replace('=', '-').replace('(', '-').replace(')', '')}",
            experiments=(NAME,),
            compute=seconds_of,
            parameters={"network": network, "criterion": name},
            work=0.15 * scale.time_inputs * len(scale.time_batches) * scale.time_runs * (4 if "NPC" in name else 1),
            rank=24 if not name.startswith("NPC") else 46,
            kind="time",
        )
        for name in names
    ]


def seconds_of(context: ExperimentContext, network: str, criterion: str) -> dict[str, Any]:
    """Seconds for the inputs by batch size, one per run; values are read once at the end of each.

    The model alone is run in turn with every criterion, so that both meet the same host on the same day.
    """
    subject, scale = image_subject(context, network), context.scale
    inputs = subject.test.take(slice(0, scale.time_inputs))
    found = None if criterion == PLAIN else calibrated(context, network, named(single_settings(), criterion))
    seconds: dict[str, list[float]] = {}
    plain: dict[str, list[float]] = {}
    for size in scale.time_batches:
        for what in (found, None):
            _once(context, subject.model, what, inputs.take(slice(0, 2 * size)), size)
        taken: list[float] = []
        alone: list[float] = []
        while len(taken) < scale.time_runs and sum(taken) < _PATIENCE:
            taken.append(_once(context, subject.model, found, inputs, size))
            if criterion != PLAIN:
                alone.append(_once(context, subject.model, None, inputs, size))
        seconds[str(size)] = [round(number, 5) for number in taken]
        plain[str(size)] = [round(number, 5) for number in alone]
    return {"inputs": len(inputs), "seconds": seconds, **({} if criterion == PLAIN else {"plain": plain})}


def _once(context: ExperimentContext, model: Any, criterion: AnyCriterion | None, inputs: Samples, size: int) -> float:
    context.wait()
    started = time.perf_counter()
    if criterion is None:
        with torch.no_grad():
            for batch, _ in inputs.batches(size):
                model(batch)
    else:
        coverage = Coverage(model, [criterion])
        with quiet():
            coverage.assess(inputs.batches(size), progress=False)
            coverage.values()
    context.wait()
    return time.perf_counter() - started
