"""``fuzz-guides``: what each way of searching finds at an equal number of calls of the model, all mutants valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from neuralcov import CC, KMNC, LCC, NC, NLC, Coverage, Fuzzer
from neuralcov.fuzz import Fault, FuzzSettings, Mutation
from neuralcov.fuzz.faults.quality import frechet_distance, gaussian_of
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.fuzzing import inception_features
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.lcc.subjects import REVIEWS
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.searching.measures import FaultJudge, distinct_faults
from neuralcov_lab.experiments.searching.stripes import continuous_perturbations
from neuralcov_lab.experiments.searching.subjects import SearchSubject, search_subject
from neuralcov_lab.experiments.settings import AnyCriterion

NAME = "fuzz-guides"
RANDOM = "random"
UNSURE = "random from DeepGini's seeds"
UNSURE_MARGIN = "margin, forecast, from DeepGini's seeds"
DEFAULT = "margin+coverage, forecast"
# After the idea of BET: its perturbations are the only mutations, or join the usual ones.
ALONE, JOINED = "by bands and squares", "by all mutations"
# Readings of the curve over calls.
_READINGS = 10
# Calls of the model for every seed: with many more, all guides come to know all there is to find.
_CALLS = 5
# Faults that a distance of distributions needs at least.
_FEWEST = 20
# Parents for every call, at most.
_TRIES = 50
# A wave holds this part of the seeds.
_WAVES_OF = 4
# Campaigns from two sets of seeds differ by a tenth: it takes some to tell ways apart.
_RUNS = 5

_PLAIN = {"mutation_choice": "uniform"}
# The search of each way, and the criterion that guides, where one does.
WAYS: dict[str, tuple[dict[str, Any], AnyCriterion | None]] = {
    RANDOM: ({"guide": "random", "check_random": True, **_PLAIN}, None),
    "coverage NLC": ({"guide": "coverage", **_PLAIN}, NLC()),
    "coverage LCC": ({"guide": "coverage", **_PLAIN}, LCC(over="mean")),
    UNSURE: ({"guide": "random", "check_random": True, **_PLAIN}, None),
    "DeepHunter (KMNC)": ({"guide": "coverage", "schedule": "fresh", **_PLAIN}, KMNC(1000)),
    "TensorFuzz (CC)": ({"guide": "coverage", **_PLAIN}, CC(10)),
    "margin": ({"guide": "margin", **_PLAIN}, None),
    "random, forecast": ({"guide": "random", "check_random": True, "mutation_choice": "forecast"}, None),
    "random, bandit": ({"guide": "random", "check_random": True, "mutation_choice": "bandit"}, None),
    "margin, bandit": ({"guide": "margin", "mutation_choice": "bandit"}, None),
    "margin, bandit, up to 3 at once": ({"guide": "margin", "mutation_choice": "bandit", "stack": 3}, None),
    "elites, bandit": ({"guide": "elites", "mutation_choice": "bandit"}, None),
    "margin+coverage, bandit": ({"guide": "margin+coverage", "mutation_choice": "bandit"}, NLC()),
    "margin, forecast": ({"guide": "margin", "mutation_choice": "forecast"}, None),
    UNSURE_MARGIN: ({"guide": "margin", "mutation_choice": "forecast"}, None),
    "elites, forecast": ({"guide": "elites", "mutation_choice": "forecast"}, None),
    "margin+coverage LCC, forecast": ({"guide": "margin+coverage", "mutation_choice": "forecast"}, LCC(over="mean")),
    DEFAULT: ({"guide": "margin+coverage", "mutation_choice": "forecast"}, NLC()),
    f"random, {ALONE}": ({"guide": "random", "check_random": True, **_PLAIN}, None),
    f"margin, bandit, {ALONE}": ({"guide": "margin", "mutation_choice": "bandit"}, None),
    f"elites, bandit, {ALONE}": ({"guide": "elites", "mutation_choice": "bandit"}, None),
    f"margin, forecast, {ALONE}": ({"guide": "margin", "mutation_choice": "forecast"}, None),
    f"random, {JOINED}": ({"guide": "random", "check_random": True, **_PLAIN}, None),
    f"margin, forecast, {JOINED}": ({"guide": "margin", "mutation_choice": "forecast"}, None),
}


def plan(scale: Scale) -> list[Job]:
    """Plan a campaign for every network, way of searching and run."""
    networks = scale.networks if "digits" in scale.networks else (*scale.networks, REVIEWS)
    return [
        Job(
            name=f"{NAME}.{network}.{_plain(way)}" + (f".run{run}" if run else ""),
            experiments=(NAME,),
            compute=search,
            parameters={"network": network, "way": way, "run": run},
            work=_CALLS * scale.fuzz_seeds,
            rank=120 + run,
            kind=f"{NAME} {network}",
        )
        for network in networks
        for way in WAYS
        if network != REVIEWS or not way.endswith((ALONE, JOINED))
        for run in range(max(_RUNS, scale.runs))
    ]


def _plain(way: str) -> str:
    return "-".join("".join(sign if sign.isalnum() else " " for sign in way).split())


def search(context: ExperimentContext, network: str, way: str, run: int) -> dict[str, Any]:
    """Return what one campaign finds, with readings as it goes."""
    subject, scale = search_subject(context, network), context.scale
    chosen, criterion = WAYS[way]
    draw = subject.unsure_seeds if way in (UNSURE, UNSURE_MARGIN) else subject.seeds
    seeds = draw(context, scale.fuzz_seeds, run)
    # Texts may change as much as images do, in words.
    wave = max(1, min(scale.fuzz_wave, len(seeds) // _WAVES_OF))
    settings = FuzzSettings(seed=context.seed_of(run), wave=wave, max_per_group=1).changed(**chosen)
    coverage = Coverage(subject.model, [NC(0.75) if criterion is None else criterion])
    with quiet():
        if criterion is not None and criterion.learns:
            coverage.calibrate(context.once(("to calibrate", network), lambda: _training(context, subject)))
        fuzzer = Fuzzer(
            coverage,
            seeds.inputs,
            seeds.labels,
            mutations=_mutations(subject, settings, way),
            preprocess=subject.prepare,
            settings=settings,
            levels=seeds.levels,
            words=seeds.words,
        )
        readings = []
        for part in range(1, _READINGS + 1):
            calls = _CALLS * len(seeds) * part // _READINGS
            # All get the same number of calls, however long that takes; parents without valid mutants end some day.
            done = fuzzer.run(_TRIES * calls, calls=calls, progress=False)
            readings.append([done.stats.judged, done.stats.distinct, done.stats.roots])
    stats, faults = done.stats, distinct_faults(done)
    judge = context.prepare(("judge", network), lambda: FaultJudge.of(subject))
    return {
        "calls": stats.judged,
        "wanted": _CALLS * len(seeds),
        "seeds": len(seeds),
        "mutants made": stats.candidates,
        "distinct": stats.distinct,
        "roots": stats.roots,
        "misread": stats.faulty,
        **judge.figures(faults, seeds.inputs, seeds.levels),
        "frechet": _frechet(context, subject, faults, seeds, (network, draw == subject.unsure_seeds, run)),
        "new fault chance": stats.new_fault_chance,
        "readings": readings,
        "seconds": stats.seconds,
    }


def _mutations(subject: SearchSubject, settings: FuzzSettings, way: str) -> list[Mutation]:
    usual = [] if way.endswith(ALONE) else subject.mutations(settings)
    return [*usual, *(continuous_perturbations() if way.endswith((ALONE, JOINED)) else [])]


def _frechet(
    context: ExperimentContext, subject: SearchSubject, faults: Sequence[Fault], seeds: Samples, drawn: tuple[Any, ...]
) -> float | None:
    """Return the Fréchet distance of faults to the seeds; ``None`` where it is not to be had."""
    if subject.texts or seeds.inputs.shape[1] != 3 or len(faults) < _FEWEST:
        return None
    try:
        net = context.prepare("inception", lambda: zoo.inception().to(context.device))
    except DataError:
        return None
    images = torch.stack([fault.input for fault in faults]).to(context.device)
    ours = inception_features(net, images, seeds.levels)
    theirs = context.prepare(
        ("gaussian of seeds", drawn), lambda: gaussian_of([inception_features(net, seeds.inputs, seeds.levels)])
    )
    return frechet_distance(gaussian_of([ours]), theirs)


def _training(context: ExperimentContext, subject: SearchSubject) -> Any:
    return list(subject.training_batches(context.scale.batch))
