"""Write the report: pages, one JSON file and plots from whatever jobs are done; nothing is computed anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from neuralcov.core.counted import counted
from neuralcov_lab.experiments import paper, plots, tables, takeaways
from neuralcov_lab.experiments.companions import BESIDE, LATER, checks, joined
from neuralcov_lab.experiments.comparisons import Comparison, comparisons
from neuralcov_lab.experiments.jobs import DONE, JobFolder, JobResult, estimate, write_json
from neuralcov_lab.experiments.lcc.page import proof_lead, proof_page
from neuralcov_lab.experiments.lcc.panel import panel_section
from neuralcov_lab.experiments.lcc.plan import NAME as LCC
from neuralcov_lab.experiments.ranking import Standing, beside, costs, planned_criteria, ranking
from neuralcov_lab.experiments.searching import guides, retraining, rules
from neuralcov_lab.experiments.searching.page import (
    guides_lead,
    guides_page,
    retraining_lead,
    retraining_page,
    rules_lead,
    rules_page,
)
from neuralcov_lab.experiments.selecting.page import select_lead, select_page
from neuralcov_lab.experiments.selecting.plan import NAME as SELECT

PAGES = (
    "diversity-image",
    "diversity-text",
    "diversity-generative",
    "faults",
    "faults-test",
    "perturbations",
)
_TIME = "Seconds to measure the inputs, calibration not counted: median, range and number of runs."
_FUZZ = (
    "Campaigns from the same seeds; those cut short say how many seeds were done. Counts, seeds and classes are of the "
    "first run, the rest means over all runs, which start from other seeds. FID is to the seeds. IS is taken over "
    "Inception's features, since the weights to be had lack the last layer: compare it within this column only."
)


def write_report(folder: JobFolder) -> list[Path]:
    """Write ``ranking.md``, a page per experiment, ``results.json`` and ``plots/``; give their paths."""
    found = comparisons(folder)
    taken = costs(folder)
    standings = ranking(found, taken, planned_criteria(folder))
    written = []

    def page(name: str, lead: str, text: str, drawn: bool = True) -> None:
        path = folder.path / f"{name}.md"
        path.write_text(takeaways.page(name, lead, text, drawn))
        written.append(path)

    for name in PAGES:
        if any(comparison.experiment == name for comparison in found):
            usual = f"noise ±{folder.plan()[0].noises[0]:g}," if name == "diversity-image" else ""
            text = tables.experiment_page(name, found, _notes(folder, name), usual)
            page(name, takeaways.of_orders(name, found), text)
    for name, say, build, words in (
        ("time", lambda _: takeaways.of_time(taken), tables.time_table, _TIME),
        ("order", takeaways.of_order, tables.order_table, "The suite is measured on its own."),
        ("fuzz", takeaways.of_campaigns, tables.fuzz_table, _FUZZ),
    ):
        jobs = [job for job in joined(folder.results()) if job.belongs_to(name)]
        if jobs:
            page(name, say(jobs), "\n\n".join([words, *_notes(folder, name), build(jobs)]))
    for name, say, write in (
        (LCC, proof_lead, partial(proof_page, beside=panel_section(folder))),
        (SELECT, select_lead, select_page),
        (guides.NAME, guides_lead, guides_page),
        (rules.NAME, rules_lead, rules_page),
        (retraining.NAME, retraining_lead, retraining_page),
    ):
        jobs = [job for job in folder.results() if job.belongs_to(name)]
        if jobs:
            page(name, say(jobs), write(jobs, _notes(folder, name)))
    page("ranking", takeaways.of_ranking(standings), _index(folder, found, standings), bool(found))
    written.append(folder.path / "results.json")
    write_json(written[-1], _content(folder, found, standings))
    return [*written, *plots.draw(folder, found, standings)]


def _index(folder: JobFolder, found: Sequence[Comparison], standings: Sequence[Standing]) -> str:
    parts = [
        *_notes(folder, None),
        f"{sum(len(c.runs) for c in found)} verdicts on {len(found)} ground-truth orders. An order counts as right if "
        "the means over runs fall strictly along it. Criteria are ranked by the share of orders they get right, all "
        "their settings together; those judged on less than half as many stand last, since theirs is not the same "
        "question. The share in one run is what a single run gets right on average. The mean over experiments gives "
        "each row of the second table the same weight. Pairs are any two suites of an order. x1 is the beginning of "
        "x10: criteria which never fall have that part of an order for nothing.",
        tables.ranking_table(standings),
        "By way of measuring, with the interval in which the share lies in 95 of 100 cases (Wilson's, as if orders "
        "were independent, which they are not quite):",
        tables.bases_table([standing for standing in standings if standing.total.judged]),
        "By experiment and way of measuring:",
        tables.parts_table([standing for standing in standings if standing.total.judged]),
        *_beside_later(found),
        *panel_section(folder),
        *_companions(folder),
        f"The paper: {paper.source()}.",
        _missing(folder),
    ]
    return "\n\n".join(parts)


def _beside_later(found: Sequence[Comparison]) -> list[str]:
    """Compare all criteria on the orders and runs that a later criterion has, where it has not all of them."""
    alike = beside(found, LATER)
    if not alike:
        return []
    missed = Counter(one.experiment for one in found if "SNAC" in one.runs and LATER not in one.runs)
    without = ", ".join(f"{experiment} {count}" for experiment, count in missed.items())
    runs = Counter(len(next(iter(one.runs.values()))) for one in alike)
    each = ", ".join(f"{count} in {counted(number, 'run')}" for number, count in sorted(runs.items()))
    return [
        f"## Beside {LATER}, on the same orders",
        f"{LATER} came later and was judged on {len(alike)} orders ({each}). Here all criteria are, on these orders "
        "and as many runs, or draws at equal size, of each. Alone, all are judged on x1, even those that can fall. "
        + (f"{LATER} was not measured for: {without}." if without else f"No order lacks {LATER}."),
        tables.bases_table(ranking(alike, {})),
        tables.settings_table(ranking(alike, {})),
    ]


def _companions(folder: JobFolder) -> list[str]:
    """Say whether criteria that came later were measured on the suites of before."""
    found = checks(folder.results())
    if not found:
        return []
    rows = [[c.experiment, str(c.values), str(c.equal), f"{c.median:.2%}", f"{c.gap:.2%}"] for c in found]
    header = ["experiment", "values of SNAC", "equal", "median gap", "largest gap"]
    return [
        f"{LATER} came later and was measured in companion jobs, on the same suites from the same seeds, some in "
        "fewer runs or more draws. SNAC was measured there again: its values beside those of before, gaps relative to "
        "these. Attacks do not come out the same twice on a GPU, and neither does rounding.",
        tables.markdown(header, rows),
    ]


def _notes(folder: JobFolder, experiment: str | None) -> list[str]:
    """Scale, device, versions and seeds, and what attacks achieved."""
    scale, planned = folder.plan()
    made = [job for job in folder.results() if experiment is None or experiment in planned[job.name]["experiments"]]
    machines = _machines(made)
    seeds = sorted({job.content["seed"] for job in made})
    trial = f", sizes divided by {scale.divided}: a trial, not a result" if scale.divided > 1 else ""
    notes = [f"Scale `{scale.name}`{trial}. {'; '.join(machines)}. Seed {', '.join(map(str, seeds))}."]
    if experiment is not None:
        divided = f" --divide {scale.divided}" if scale.divided > 1 else ""
        device = " --device cuda" if any("NVIDIA" in machine for machine in machines) else ""
        seeded = f" --seed {seeds[0]}" if seeds and seeds[0] != 0 else ""
        notes[0] += f" Made by `neuralcov reproduce {experiment} --scale {scale.name}{device}{seeded}{divided}`."
    toys = [name for name in scale.made_up if experiment in (None, name) and any(job.belongs_to(name) for job in made)]
    if toys:
        notes.append(f"The data of {' and '.join(toys)} are made up on the spot: what is right there means little.")
    attacks: dict[str, list[float]] = {}
    first = folder.first_runs()
    for job in made:
        if experiment is not None and "attack" in job.result and BESIDE not in job.parameters:
            attacks.setdefault(first[job.name], []).append(job.result["attack"]["success"])
    if attacks:
        said = "; ".join(f"{name} {_share(successes)}" for name, successes in attacks.items())
        notes.append(f"Attacked inputs that are misclassified: {said}.")
    return notes


def _share(runs: Sequence[float]) -> str:
    """Of several runs the least and the most."""
    return f"{min(runs):.2%}" + (f" to {max(runs):.2%}" if max(runs) > min(runs) else "")


def _machines(jobs: Iterable[JobResult]) -> list[str]:
    """Return what the jobs were made on; of several machines each with its number of jobs."""
    counted = Counter(_machine(job.content["machine"]) for job in jobs)
    return [name if len(counted) == 1 else f"{name} ({count} of the jobs)" for name, count in counted.most_common()]


def _machine(machine: dict[str, Any]) -> str:
    known = [f"{what} {machine[what]}" for what in ("torch", "python", "neuralcov", "foolbox") if machine[what]]
    return ", ".join([machine["device"], *known])


def _missing(folder: JobFolder) -> str:
    """Jobs that failed and jobs that were not run, repetitions of one job together."""
    failed: list[list[str]] = []
    waiting: dict[str, list[float | None]] = {}
    planned, first = folder.plan()[1], folder.first_runs()
    for name in sorted(planned, key=lambda name: planned[name]["rank"]):
        content = folder.read(name)
        if content is None:
            title = name if name == first[name] else f"{first[name]}, repetitions"
            waiting.setdefault(title, []).append(estimate(name, folder))
        elif content["status"] != DONE:
            # The file has all of it; the first sentence says what happened.
            failed.append([name, content["reason"].replace("|", "/").splitlines()[0].partition(". ")[0]])
    parts = []
    if failed:
        parts += ["## Failed", tables.markdown(["job", "reason"], failed)]
    if waiting:
        rows = [[title, str(len(seconds)), _together(seconds)] for title, seconds in waiting.items()]
        parts += ["## Not run", tables.markdown(["job", "jobs", "would take about"], rows)]
    return "\n\n".join(parts) if parts else "All planned jobs are done."


def _together(seconds: Sequence[float | None]) -> str:
    known = [number for number in seconds if number is not None]
    return f"{sum(known):.0f} s" if known else "–"


def _content(folder: JobFolder, found: Sequence[Comparison], standings: Sequence[Standing]) -> dict[str, Any]:
    scale, planned = folder.plan()
    return {
        "scale": scale.to_json(),
        "machines": _machines(folder.results()),
        "ranking": [standing.to_json() for standing in standings],
        "comparisons": [
            {**comparison.to_json(), "paper": {name: tables.paper_right(comparison, name) for name in comparison.runs}}
            for comparison in found
        ],
        "cells": {name: (folder.read(name) or {"status": "not run"})["status"] for name in planned},
    }
