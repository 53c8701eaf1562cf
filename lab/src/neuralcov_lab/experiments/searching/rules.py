"""``fuzz-rules``: the artefact's rules, the paper's and ours under every criterion; one rule switched at a time."""

from __future__ import annotations

from typing import Any

from neuralcov import NC, Coverage, Fuzzer
from neuralcov.fuzz import FuzzSettings
from neuralcov.fuzz.rules import OURS, PAPER, PUBLISHED
from neuralcov_lab.experiments.context import ExperimentContext, numbers_of
from neuralcov_lab.experiments.jobs import Job
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.scales import Scale
from neuralcov_lab.experiments.searching.measures import outputs_in_three_ways
from neuralcov_lab.experiments.searching.subjects import search_subject, styles
from neuralcov_lab.experiments.settings import fuzz_settings, named
from neuralcov_lab.experiments.subjects import calibrated

NAME = "fuzz-rules"
RANDOM = "random"
_FIRST_ROWS = 31
# What the artefact observes before the seeds.
_FIRST_INPUTS, _FIRST_BATCH = 1000, 50
# Of the iterations of ``fuzz``: as many as the artefact was emulated with.
_PART = 5
# A wave holds this part of the seeds.
_WAVES_OF = 5
# No campaign runs the model more often than this many times per iteration; criteria that admit next to nothing would.
_MOST_CALLS = 10

# Ours under Algorithm 1: the guide is not one of the rules.
_OURS = OURS.changed(guide="coverage", mutation_choice="uniform")
SETS = {"published": PUBLISHED, "paper": PAPER, "ours": _OURS}
SWITCHED: dict[str, tuple[str, ...]] = {
    "α and β": ("alpha", "beta"),
    "counted": ("counted",),
    "compared": ("compared",),
    "exempt_styles": ("exempt_styles",),
    "border": ("border",),
    "mutation_choice": ("mutation_choice",),
    "identities": ("identities",),
    "initial": ("initial",),
    "schedule": ("schedule",),
}


def rules_of(name: str, switched: str | None) -> FuzzSettings:
    """Return a set of rules, one of them switched to ours.

    >>> rules_of("published", "compared").compared, rules_of("published", "compared").border
    ('moved', 'white')
    """
    found = SETS[name]
    return (
        found if switched is None else found.changed(**{field: getattr(_OURS, field) for field in SWITCHED[switched]})
    )


def plan(scale: Scale) -> list[Job]:
    """Plan campaigns for every set of rules and criterion, and for every rule that is switched."""
    guides = [RANDOM, *(criterion.name for criterion in fuzz_settings())]
    wanted: list[tuple[str, str | None, str]] = [(rules, None, guide) for rules in SETS for guide in guides]
    wanted += [("published", switched, guide) for switched in SWITCHED for guide in (RANDOM, "NLC")]
    return [_job(scale, rules, switched, guide, run) for rules, switched, guide in wanted for run in range(scale.runs)]


def _job(scale: Scale, rules: str, switched: str | None, guide: str, run: int) -> Job:
    network = scale.networks[0]
    plain = "-".join("".join(sign if sign.isalnum() else " " for sign in guide).split())
    turned = "" if switched is None else "-" + "-".join(SWITCHED[switched])
    return Job(
        name=f"{NAME}.{network}.{rules}{turned}.{plain}" + (f".run{run}" if run else ""),
        experiments=(NAME,),
        compute=campaign,
        parameters={"network": network, "rules": rules, "switched": switched, "criterion": guide, "run": run},
        work=scale.fuzz_iterations,
        rank=130 + run + (0 if guide in (RANDOM, "NLC") else 10),
        kind=f"{NAME} {guide}",
    )


def campaign(
    context: ExperimentContext, network: str, rules: str, switched: str | None, criterion: str, run: int
) -> dict[str, Any]:
    """Return outputs and faults, counted in three ways."""
    subject, scale = search_subject(context, network), context.scale
    seeds = subject.seeds(context, max(20, scale.fuzz_seeds // _PART), run)
    # Small waves, since what one keeps can be sampled in the next at the earliest.
    settings = rules_of(rules, switched).changed(seed=context.seed_of(run), wave=max(1, len(seeds) // _WAVES_OF))
    if criterion == RANDOM:
        settings = settings.changed(guide=RANDOM)
    guide = NC(0.0) if criterion == RANDOM else calibrated(context, network, named(fuzz_settings(), criterion))
    coverage = Coverage(subject.model, [guide])
    style = styles(context)
    iterations = max(20, scale.fuzz_iterations // _PART)
    with quiet():
        if settings.initial == "given" and settings.uses_coverage:
            rows = context.rows(len(subject.train), _FIRST_INPUTS, *numbers_of(_FIRST_ROWS, run))
            coverage.assess(subject.train.take(rows).batches(_FIRST_BATCH), progress=False)
        fuzzer = Fuzzer(
            coverage,
            seeds.inputs,
            seeds.labels,
            mutations=subject.mutations(settings, style),
            preprocess=subject.prepare,
            settings=settings,
            levels=seeds.levels,
        )
        done = fuzzer.run(iterations, calls=_MOST_CALLS * iterations, seconds=scale.fuzz_seconds, progress=False)
    stats = done.stats
    return {
        "iterations": stats.iterations,
        "wanted": iterations,
        "seeds": len(seeds),
        "outputs": done.outputs,
        "faults": outputs_in_three_ways(done),
        "distinct": stats.distinct,
        "calls": done.state.counts.run,
        "mutants made": stats.candidates,
        "stylised": style is not None,
        "seconds": stats.seconds,
    }
