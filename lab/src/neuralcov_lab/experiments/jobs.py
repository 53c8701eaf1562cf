"""Cut experiments into jobs, compute each once and keep it as a file.

Folders and files call a job a cell, its earlier name: results made then are read for ever.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any

from filelock import FileLock

from neuralcov import NeuralcovError
from neuralcov.core.errors import InputError
from neuralcov.core.files import atomic_write
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.scales import Scale, scale_from_json

DONE, FAILED = "done", "failed"
_DESCRIBED = frozenset({"experiments", "parameters", "work", "rank", "kind"})
_KEPT = _DESCRIBED | {"name", "status", "seconds", "seed"}


@dataclass(frozen=True)
class Job:
    """Describe one piece of an experiment.

    Args:
        name: unique among all experiments; the file's name.
        experiments: those that use it.
        compute: from the context and the parameters to plain data; nothing else may matter.
        parameters: plain data.
        work: how much there is to do, in inputs measured, for estimates.
        rank: jobs of low rank are computed first.
        kind: jobs of one kind take about the same time for the same work.
    """

    name: str
    experiments: tuple[str, ...]
    compute: Callable[..., dict[str, Any]]
    parameters: Mapping[str, Any]
    work: float
    rank: int
    kind: str

    def description(self) -> dict[str, Any]:
        """Return what identifies it."""
        return {
            "experiments": list(self.experiments),
            "parameters": dict(self.parameters),
            "work": self.work,
            "rank": self.rank,
            "kind": self.kind,
        }


@dataclass
class Outcome:
    """Tell what became of the jobs of one run."""

    computed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """Hold a finished job: its name, for people to read, and all that its file says."""

    name: str
    content: Mapping[str, Any]

    @property
    def experiments(self) -> list[str]:
        """The experiments that use it, its own first."""
        return list(self.content["experiments"])

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What it was computed with."""
        parameters: Mapping[str, Any] = self.content["parameters"]
        return parameters

    @property
    def result(self) -> dict[str, Any]:
        """What it gave."""
        result: dict[str, Any] = self.content["result"]
        return result

    def belongs_to(self, experiment: str) -> bool:
        """Return whether it is a job of this experiment alone or first."""
        return self.experiments[0] == experiment


class JobFolder:
    """Keep jobs in ``plan.json`` and ``cells/NAME.json``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self) -> tuple[Scale, dict[str, dict[str, Any]]]:
        """Return the scale and every job ever planned here."""
        if not (self.path / "plan.json").is_file():
            raise InputError(
                f"{self.path}: holds no results; run `neuralcov reproduce NAME --output {self.path}` first"
            )
        try:
            content = json.loads((self.path / "plan.json").read_text(encoding="utf-8"))
            scale, cells = scale_from_json(content["scale"]), content["cells"]
            if not all(job.keys() >= _DESCRIBED for job in cells.values()):
                raise KeyError("a job without its description")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{self.path}/plan.json: not a plan, or damaged ({error}); take it from a copy") from error
        return scale, cells

    def add_plan(self, scale: Scale, jobs: Sequence[Job]) -> None:
        """Put jobs on the plan; results of another scale are refused."""
        # Other processes must not change the plan meanwhile: what one adds, another would overwrite.
        self.path.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path / ".lock"):
            planned: dict[str, Any] = {}
            if (self.path / "plan.json").is_file():
                before, planned = self.plan()
                difference = scale.differs(before)
                if difference is not None:
                    raise InputError(
                        f"{self.path}: holds results of another scale, {difference}; choose another --output"
                    )
            planned |= {job.name: job.description() for job in jobs}
            write_json(self.path / "plan.json", {"scale": scale.to_json(), "cells": planned})

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what a job gave, or ``None``."""
        path = self.path / "cells" / f"{name}.json"
        if not path.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not content.keys() >= _KEPT:
                raise ValueError("it lacks what every job has")
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not a job, or damaged ({error}); remove it to compute it again") from error
        return content

    def write(self, job: Job, content: Mapping[str, Any]) -> None:
        """Keep what a job gave, in one step."""
        write_json(self.path / "cells" / f"{job.name}.json", {"name": job.name, **job.description(), **content})

    def results(self) -> Iterator[JobResult]:
        """Iterate over the jobs that are done."""
        for name in self.plan()[1]:
            content = self.read(name)
            if content is not None and content["status"] == DONE:
                yield JobResult(name, content)

    def criteria(self) -> list[str]:
        """Return the criteria that planned jobs are about, by name: what a ranking ranks even if nothing was judged."""
        parameters = [job["parameters"] for job in self.plan()[1].values()]
        return list(dict.fromkeys(given["criterion"] for given in parameters if "criterion" in given))

    def first_runs(self) -> dict[str, str]:
        """Return, by job, the name of the first of its repetitions: the job that differs in ``run`` alone."""
        groups: dict[str, dict[int | None, str]] = {}
        for name, job in self.plan()[1].items():
            given = dict(job["parameters"])
            run = given.pop("run", None)
            groups.setdefault(json.dumps([job["experiments"], job["kind"], given], sort_keys=True), {})[run] = name
        first: dict[str, str] = {}
        for runs in groups.values():
            # The first run may be 0 or not be named. Where there are both, the job without runs is another one.
            start = runs.get(0) or runs.get(None)
            first |= {name: name if start is None or run is None else start for run, name in runs.items()}
        return first


def run_jobs(
    jobs: Sequence[Job],
    folder: JobFolder,
    context: ExperimentContext,
    *,
    budget: float | None = None,
    only: Sequence[str] = (),
    notify: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Compute what is missing, lowest rank first, as long as the budget lasts.

    A job that is expected not to fit into what is left is passed over; finished ones are kept, failed ones
    tried again.

    Args:
        jobs: what is planned.
        folder: where results are kept; several processes may share it if ``only`` gives each its own jobs.
        context: what every job is given.
        budget: seconds.
        only: patterns, of which the names of jobs to compute match one; without any, all are computed.
        notify: told what is going on.
    """
    chosen = [job for job in jobs if not only or any(fnmatchcase(job.name, pattern) for pattern in only)]
    if not chosen:
        raise InputError(f"no job matches {' or '.join(only)}; there are {_examples(jobs)}")
    folder.add_plan(context.scale, jobs)
    outcome, started = Outcome(), time.monotonic()
    for job in sorted(chosen, key=lambda job: job.rank):
        before = folder.read(job.name)
        if before is not None and before["seed"] != context.seed:
            raise InputError(
                f"{folder.path}: holds results of seed {before['seed']}, not {context.seed}; choose another --output, "
                "since suites of different seeds cannot be compared"
            )
        if before is not None and before["status"] == DONE and before["parameters"] == _plain(job.parameters):
            outcome.kept.append(job.name)
            continue
        expected = estimate(job.name, folder)
        left = None if budget is None else budget - (time.monotonic() - started)
        if left is not None and (left <= 0 or (expected or 0) > left):
            outcome.not_run[job.name] = expected
            continue
        notify(f"{job.name} …" if expected is None else f"{job.name} (about {expected:.0f} s) …")
        reason = _compute(job, folder, context)
        if reason is None:
            outcome.computed.append(job.name)
        else:
            outcome.failed[job.name] = reason
            notify(f"{job.name} failed: {reason}")
    return outcome


def estimate(name: str, folder: JobFolder) -> float | None:
    """Estimate the seconds a job takes, from finished ones of its kind, or else of any; ``None`` without any."""
    planned = folder.plan()[1]
    job = planned[name]
    rates: dict[str, list[float]] = {}
    for done in folder.results():
        rate = done.content["seconds"] / max(done.content["work"], 1)
        rates.setdefault(planned[done.name]["kind"], []).append(rate)
    known = rates.get(job["kind"]) or [rate for kind in rates.values() for rate in kind]
    return median(known) * job["work"] if known else None


def write_json(path: Path, content: Any) -> None:
    """Write plain data so that a reader sees the old file or the new one, never half of it."""
    with atomic_write(path) as file:
        file.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _compute(job: Job, folder: JobFolder, context: ExperimentContext) -> str | None:
    """Compute one job and keep it; give the reason if it failed."""
    started, prepared = time.monotonic(), context.prepared
    about: dict[str, Any] = {"seed": context.seed, "scale": context.scale.name, "divided": context.scale.divided}
    try:
        result = job.compute(context, **job.parameters)
    except NeuralcovError as error:
        reason = str(error)
    except Exception as error:
        # A bug or a lack of memory in one job must not cost the others; the place goes into the file.
        reason = f"{type(error).__name__}: {error}"
        about["traceback"] = traceback.format_exc()
    else:
        context.wait()
        preparing = context.prepared - prepared
        seconds = time.monotonic() - started - preparing
        took = {"seconds": round(seconds, 3), "preparing": round(preparing, 3)}
        # Only now are all packages imported whose versions are stated.
        folder.write(job, {"status": DONE, **took, "machine": context.machine(), **about, "result": result})
        return None
    took = {"seconds": round(time.monotonic() - started, 3)}
    folder.write(job, {"status": FAILED, "reason": reason, **took, "machine": context.machine(), **about})
    return reason


def _examples(jobs: Sequence[Job]) -> str:
    names = sorted(job.name for job in jobs)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _plain(parameters: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(parameters)))
