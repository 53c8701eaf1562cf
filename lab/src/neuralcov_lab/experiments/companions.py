"""Measure criteria that came later on the very suites of the jobs before them, in companion jobs, and join the two.

A companion is computed as its job is, from the same seeds, by a context that gives it the later criteria only. So what
took hours is not measured again. SNAC is, in every companion: its values say whether suites and networks are those of
the job, and reports show how far they are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from statistics import median
from typing import Any

from neuralcov_lab.experiments import diversity_generative, diversity_image, diversity_text, faults, order
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.jobs import Job, JobResult
from neuralcov_lab.experiments.settings import check_settings

BESIDE, LATER = "beside", "LCC"
_COMPUTES = (
    diversity_image.test_suite,
    diversity_image.noisy_copies,
    diversity_image.equal_sizes,
    diversity_text.test_reviews,
    diversity_text.shuffled_copies,
    diversity_generative.schemes,
    faults.attacked_training,
    faults.attacked_test,
    faults.kept_predictions,
    order.orders,
)
# After the jobs they stand beside; long attacks last of all.
_LATER, _LAST = 200, 300
_LONG = 300_000
# What a later criterion costs beside all of those before.
_SHARE = 0.2
# How far accuracy and check of the test suite may be apart on one network, which rounds differently elsewhere.
_AS_ACCURATE, _NEARLY = 1e-3, 1e-2
_READING = ("increase", "own", "beside", "left out")


def with_companions(jobs: Iterable[Job]) -> Iterator[Job]:
    """Iterate over jobs, each with its companion, if it measures suites that later criteria can be measured on."""
    for job in jobs:
        yield job
        # No later criterion depends on order, so there is nothing to see where order matters.
        if job.compute in _COMPUTES and not job.parameters.get("dependent"):
            yield _companion(job)


def _companion(job: Job) -> Job:
    return replace(
        job,
        name=f"{job.name}.{LATER.lower()}",
        compute=partial(_later, job.compute),
        parameters={**job.parameters, BESIDE: LATER},
        work=_SHARE * job.work,
        rank=job.rank + (_LAST if job.work > _LONG else _LATER),
        kind=f"{job.kind}, {LATER}",
    )


def _later(
    compute: Callable[..., dict[str, Any]], context: ExperimentContext, beside: str, **parameters: Any
) -> dict[str, Any]:
    """Compute a job for what came later, named by ``beside``."""
    assert beside == LATER
    return compute(context.for_companion(), **parameters)


def joined(results: Iterable[JobResult]) -> list[JobResult]:
    """Return jobs with what their companions measured; companions without their job are left out.

    So are companions on another network than the job's, one that was trained again: see ``strangers``.
    """
    jobs, companions = _apart(results)
    others = _others(jobs, companions)
    found = []
    for job in jobs:
        other = None if _network(job) in others else companions.get(_key(job))
        found.append(job if other is None else JobResult(job.name, {**job.content, "result": _join(job, other)}))
    return found


def strangers(results: Iterable[JobResult]) -> list[JobResult]:
    """Return companions on another network than their job's, as jobs that measured later criteria alone."""
    jobs, companions = _apart(results)
    others = _others(jobs, companions)
    return [
        JobResult(job.name, {**job.content, "parameters": {k: v for k, v in job.parameters.items() if k != BESIDE}})
        for job in (replace(own, content={**own.content, "result": _bare(own.result)}) for own in companions.values())
        if _network(job) in others
    ]


@dataclass(frozen=True)
class Check:
    """Hold how many values of SNAC jobs and their companions have in common, how many are equal, and how far apart.

    Median and largest gap are relative to the job's value.
    """

    experiment: str
    values: int
    equal: int
    median: float
    gap: float


def checks(results: Iterable[JobResult]) -> list[Check]:
    """Return, for every experiment, how the values that jobs and their companions both have compare."""
    jobs, companions = _apart(results)
    pairs: dict[str, list[tuple[float, float]]] = {}
    others = _others(jobs, companions)
    for job in jobs:
        other = companions.get(_key(job))
        if other is not None and _network(job) not in others:
            pairs.setdefault(job.experiments[0], []).extend(_shared(job.result, other.result))
    gaps = {experiment: [_gap(*pair) for pair in some] for experiment, some in pairs.items()}
    return [
        Check(experiment, len(some), sum(not gap for gap in some), median(some), max(some))
        for experiment, some in gaps.items()
        if some
    ]


def _apart(results: Iterable[JobResult]) -> tuple[list[JobResult], dict[str, JobResult]]:
    jobs, companions = [], {}
    for job in results:
        if BESIDE in job.parameters:
            companions[_key(job)] = job
        else:
            jobs.append(job)
    return jobs, companions


def _network(job: JobResult) -> str:
    return str(job.parameters.get("network", job.experiments[0]))


def _others(jobs: Sequence[JobResult], companions: Mapping[str, JobResult]) -> set[str]:
    """Return the networks that were not the same ones when companions ran, by accuracy and check on plain suites."""
    found = set()
    for job in jobs:
        other = companions.get(_key(job))
        if other is not None and "training" in job.result:
            gap = max(_gap(*pair) for pair in _shared(job.result, other.result))
            better = job.result.get("accuracy", 0.0) - other.result.get("accuracy", 0.0)
            if gap > _NEARLY or abs(better) > _AS_ACCURATE:
                found.add(_network(job))
    return found


def _gap(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / abs(ours) if ours else abs(theirs)


def _key(job: JobResult) -> str:
    """Return what a job and its companion share."""
    return str((job.experiments, sorted((name, str(v)) for name, v in job.parameters.items() if name != BESIDE)))


def _join(job: JobResult, other: JobResult) -> dict[str, Any]:
    """Return a job's result with its companion's values, but for those measured again as a check."""
    ours, theirs, result = job.result, other.result, dict(job.result)
    if "suites" in ours:
        result["suites"] = {
            suite: [_joined_reading(own, _same_size(own, theirs["suites"].get(suite, ()))) for own in readings]
            for suite, readings in ours["suites"].items()
        }
    if "training" in ours:
        values = _both(ours["training"]["values"], theirs["training"]["values"])
        result["training"] = {**ours["training"], "values": values}
    if "draws" in ours:
        result["draws"] = {
            suite: {**own, "values": _joined_draws(own["values"], theirs["draws"][suite]["values"])}
            for suite, own in ours["draws"].items()
        }
    if "values" in ours:
        result["values"] = _both(ours["values"], theirs["values"])
    return result


def _bare(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a companion's result without what was measured again as a check."""
    suites = {
        suite: [_joined_reading({part: {} for part in _READING} | {"inputs": own["inputs"]}, own) for own in readings]
        for suite, readings in result.get("suites", {}).items()
    }
    return {**result, "suites": suites} if suites else dict(result)


def _same_size(reading: Mapping[str, Any], readings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((other for other in readings if other["inputs"] == reading["inputs"]), {})


def _joined_reading(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, **{part: _both(own.get(part, {}), other.get(part, {})) for part in _READING if part in own}}


def _joined_draws(own: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the values of every draw; where one of the two has more draws, the rest hold its criteria only."""
    return [_both(first or {}, second or {}) for first, second in zip_longest(own, other)]


def _both(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    again = {criterion.name for criterion in check_settings()}
    return {**ours, **{name: value for name, value in theirs.items() if name not in again}}


def _shared(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    """Iterate over pairs of values that both have under one name in one place."""
    again = {criterion.name for criterion in check_settings()}
    for suite, readings in ours.get("suites", {}).items():
        for own in readings:
            other = _same_size(own, theirs["suites"].get(suite, ()))
            for part in ("increase", "own"):
                first, second = own[part], other.get(part, {})
                yield from ((first[name], second[name]) for name in again if name in first and name in second)
    for suite, own in ours.get("draws", {}).items():
        other = theirs["draws"][suite]
        if own["inputs"] == other["inputs"]:
            for first, second in zip(own["values"], other["values"], strict=False):
                yield from ((first[name], second[name]) for name in again)
    for name in again & ours.get("values", {}).keys() & theirs.get("values", {}).keys():
        first, second = (values[name].values() for values in (ours["values"], theirs["values"]))
        yield from zip((v for some in first for v in some), (v for some in second for v in some), strict=False)
