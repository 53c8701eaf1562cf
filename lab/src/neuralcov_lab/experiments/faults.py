"""``faults``, ``faults-test`` and ``perturbations``: attacked inputs beside the test suite."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from neuralcov.sources.samples import Samples
from neuralcov_lab.experiments.attacks import CW_CONSTANT, LEAST_CHANGE
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.diversity_image import test_job
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.subjects import attacked, image_criteria, image_subject, perturbed

METHODS = ("PGD", "CW")
# What an attack costs per input, in inputs measured: forward and backward for every step.
_STEP = 0.6
# When each of the three is computed: CW on training data comes before other noise, the rest of it after.
_PGD_RANKS, _CW_RANKS = (10, 32, 32), (58, 67, 72)


def plan(scale: Scale) -> list[Job]:
    """PGD on training data of every network, the rest of PGD, then CW."""
    return [job for network in scale.networks for job in _jobs(network, scale)]


def faults_plan(scale: Scale) -> list[Job]:
    """Attacked training inputs."""
    return [job for job in plan(scale) if "faults" in job.experiments]


def faults_test_plan(scale: Scale) -> list[Job]:
    """Attacked test inputs."""
    return [job for job in plan(scale) if "faults-test" in job.experiments]


def perturbations_plan(scale: Scale) -> list[Job]:
    """Test inputs moved toward an attack that keep their prediction."""
    return [job for job in plan(scale) if "perturbations" in job.experiments]


def _jobs(network: str, scale: Scale) -> list[Job]:
    jobs = [test_job(network, scale)]
    for method in METHODS:
        pgd = method == "PGD"
        count, steps = (scale.attacked, scale.pgd_steps) if pgd else (scale.cw_inputs, scale.cw_steps)
        for number, (name, compute, inputs) in enumerate(
            (
                ("faults", attacked_training, count),
                ("perturbations", kept_predictions, scale.perturbed),
                ("faults-test", attacked_test, count),
            )
        ):
            # What takes seconds is repeated, with other inputs and starts; CW on thousands of inputs takes minutes.
            for run in range(scale.runs if pgd or name == "perturbations" else 1):
                own: dict[str, float] = ({"run": run} if run else {}) | ({} if pgd else {"constant": CW_CONSTANT})
                if name == "perturbations" and not pgd:
                    # CW alone leaves some inputs as they were.
                    own["least"] = LEAST_CHANGE
                jobs.append(
                    Job(
                        name=f"{name}.{network}.{method}" + (f".run{run}" if run else ""),
                        experiments=(name,),
                        compute=compute,
                        parameters={"network": network, "method": method, **own},
                        work=inputs * (1 + _STEP * steps),
                        rank=80 + run if run else (_PGD_RANKS if pgd else _CW_RANKS)[number],
                        kind=f"attack {network}",
                    )
                )
    return jobs


def attacked_training(
    context: ExperimentContext, network: str, method: str, constant: float = CW_CONSTANT, run: int = 0
) -> dict[str, Any]:
    """Attacked training inputs."""
    return _attacked(context, network, "train", method, constant, run)


def attacked_test(
    context: ExperimentContext, network: str, method: str, constant: float = CW_CONSTANT, run: int = 0
) -> dict[str, Any]:
    """Attacked test inputs."""
    return _attacked(context, network, "test", method, constant, run)


def _attacked(
    context: ExperimentContext, network: str, split: str, method: str, constant: float, run: int
) -> dict[str, Any]:
    criteria = image_criteria(context, network)
    found = attacked(context, network, split, method, constant, run)
    return {
        "suites": {method: criteria.measure(found.samples.batches(context.scale.batch))},
        "attack": found.to_json(),
        "steps": context.scale.pgd_steps if method == "PGD" else context.scale.cw_steps,
    }


def kept_predictions(
    context: ExperimentContext,
    network: str,
    method: str,
    constant: float = CW_CONSTANT,
    run: int = 0,
    least: float = LEAST_CHANGE,
) -> dict[str, Any]:
    """Perturbed test inputs that keep their prediction."""
    subject, criteria = image_subject(context, network), image_criteria(context, network)
    found = perturbed(context, network, method, constant, run, least)
    return {
        "suites": {f"AP {method}": criteria.measure(found.batches(context.scale.batch))},
        "accuracy": _accuracy(subject.model, found),
    }


@torch.no_grad()
def _accuracy(model: nn.Module, samples: Samples) -> float:
    right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in samples.batches(1000))
    return right / len(samples)
