"""``fuzz``: campaigns guided by each criterion and by none, from the same seeds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuralcov import NC, Coverage, Fuzzer
from neuralcov.fuzz import Campaign
from neuralcov.fuzz.faults.quality import frechet_distance, gaussian_of, inception_score
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext, numbers_of
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.settings import fuzz_settings, named
from neuralcov_lab.experiments.subjects import calibrated, image_subject

NAME = "fuzz"
RANDOM = "random"
_SHOWN = 8
_SPLITS = 10
_FIRST = ("NLC", RANDOM, "LVC", "TKNP(50)", "NC(0)")
# Campaigns of 40 s and more on a GPU that end with few outputs; all others are repeated, from other seeds.
_ONCE = ("MDSC(10)", "NPC(0.7)", "NLC(rule=all)")


def plan(scale: Scale) -> list[Job]:
    """Plan a campaign for each criterion and a random one."""
    names = [RANDOM, *(criterion.name for criterion in fuzz_settings())]
    runs = [(name, run) for name in names for run in range(1 if name in _ONCE else scale.runs)]
    return [_job(scale, name, run) for name, run in runs]


def _job(scale: Scale, name: str, run: int) -> Job:
    network, plain = scale.networks[0], name.replace("(", "-").replace(")", "").replace("=", "-")
    return Job(
        name=f"{NAME}.{network}.{plain}" + (f".run{run}" if run else ""),
        experiments=(NAME,),
        compute=campaign,
        parameters={"network": network, "criterion": name, **({"run": run} if run else {})},
        work=2.5 * scale.fuzz_iterations,
        rank=80 + run if run else 50 if name in _FIRST else 55,
        kind=f"fuzz {name}",
    )


def campaign(context: ExperimentContext, network: str, criterion: str, run: int = 0) -> dict[str, Any]:
    """Faults, outputs, classes and entropy, and how natural the outputs look; from other seeds in every run."""
    subject, scale = image_subject(context, network), context.scale
    seeds = subject.test.take(context.rows(len(subject.test), scale.fuzz_seeds, *numbers_of(29, run)))
    guide = NC(0.0) if criterion == RANDOM else calibrated(context, network, named(fuzz_settings(), criterion))
    fuzzer = Fuzzer(
        Coverage(subject.model, [guide]),
        seeds.inputs,
        seeds.labels,
        preprocess=seeds.prepare,
        guide=RANDOM if criterion == RANDOM else "coverage",
        mutation_choice="uniform",
        wave=scale.fuzz_wave,
        seed=context.seed_of(run),
        levels=seeds.levels,
    )
    with quiet():
        done = fuzzer.run(scale.fuzz_iterations, seconds=scale.fuzz_seconds, progress=False)
    stats = done.stats
    return {
        "iterations": done.iterations,
        "wanted": scale.fuzz_iterations,
        "outputs": done.outputs,
        # The paper counts faults among the mutants that were kept.
        "faults": stats.faulty_kept,
        "different faults": stats.distinct,
        "seeds broken": stats.roots,
        "classes": stats.classes,
        "entropy": stats.entropy,
        "seconds": stats.seconds,
        "judged": stats.judged,
        "admitted": stats.admitted,
        "natural": _natural(context, done, seeds, run),
        "pictures": _pictures(done, seeds.levels),
    }


def _natural(context: ExperimentContext, done: Campaign, seeds: zoo.Samples, run: int) -> dict[str, Any]:
    """Inception Score of the outputs, and Fréchet distance to the seeds."""
    if seeds.inputs.shape[1] != 3:
        return {"left out": "the images have no three colours"}
    try:
        net = context.prepare("inception", lambda: zoo.inception().to(context.device))
    except DataError as error:
        return {"left out": str(error)}
    theirs = context.prepare(("features of seeds", run), lambda: inception_features(net, seeds.inputs, seeds.levels))
    if done.outputs < 2:
        return {"left out": f"{done.outputs} outputs are too few"}
    ours = inception_features(net, done.inputs.to(context.device), seeds.levels)
    score, deviation = inception_score(ours) if done.outputs >= _SPLITS else (None, None)
    return {
        "inception score": score,
        "deviation": deviation,
        "frechet distance": frechet_distance(gaussian_of([ours]), gaussian_of([theirs])),
        "references": len(theirs),
    }


@torch.no_grad()
def inception_features(net: zoo.Inception, images: Tensor, levels: int) -> Tensor:
    """Return Inception's features of stored images."""
    # A CPU is faster with maps that fit its caches.
    parts = torch.split(images, 10 if images.device.type == "cpu" else 500)
    return torch.cat([net.of_pixels(p.float() / levels if p.dtype == torch.uint8 else p).double() for p in parts])


def _pictures(done: Campaign, levels: int) -> list[Any]:
    """Return a few outputs as bytes, for the figure."""
    if not done.outputs:
        return []
    images = done.inputs
    rows = torch.linspace(0, len(images) - 1, min(_SHOWN, len(images))).long().to(images.device)
    pixels = images[rows].float() / levels if images.dtype == torch.uint8 else images[rows]
    return list((pixels * 255).round().to(torch.uint8).cpu().tolist())
