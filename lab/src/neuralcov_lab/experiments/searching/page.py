"""The pages of ``fuzz-guides``, ``fuzz-rules`` and ``fuzz-retraining``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.searching.guides import ALONE, DEFAULT, JOINED, RANDOM, UNSURE_MARGIN, WAYS
from neuralcov_lab.experiments.searching.rules import RANDOM as BASELINE
from neuralcov_lab.experiments.searching.rules import SETS, SWITCHED
from neuralcov_lab.experiments.tables import markdown

_GUIDES = (
    "What each way of searching finds at an equal number of calls of the model. Validity is checked for every mutant, "
    "random ones too. Figures are per 1,000 calls, but for pairs and clusters, which are counts; means over runs from "
    "other seeds, ± standard deviation. Factors above are ratios of means over runs that both have, with the 95 % "
    "interval of the ratio over runs from the same seeds (Student's, of its logarithm). A distinct fault is another "
    "seed or another wrong class, a natural one is read rightly by the other networks; clusters are those of 100 "
    "cells of another network's features of test inputs that hold a fault; change is the mean absolute change of the "
    "distinct faults' pixels, 1 being the whole range; FID is to the seeds, where `neuralcov data get inception` was "
    "there."
)
_RULES = (
    "Outputs are the mutants that were kept. Faults among them are counted in three ways: the class is not the label; "
    "the same where the seed was read rightly; the class is not that of the mutant's parent. `published` are the rules "
    "of the NLC paper's public artefact, `paper` those of its text, `ours` our own, all under Algorithm 1. "
    "Random mutation keeps everything and checks no validity, so that rules of validity change nothing there."
)
_RETRAINING = (
    "Accuracy of a network before and after further training on its training data, with and without faults that were "
    "found from training inputs; means over runs, in per cent. The last row are faults found from test inputs in the "
    "network as it was."
)
# What is to be found this many times as often as at random, and what is to be found no more seldom.
_WANTED, _DOUBLED, _NO_FEWER = 2.0, ("distinct", "roots", "natural"), ("pairs", "clusters")
_SEARCHES = (DEFAULT, "margin, forecast", "elites, forecast", UNSURE_MARGIN)
_CONTINUOUS = tuple(way for way in WAYS if way.endswith((ALONE, JOINED)))
_SAID_OF_CONTINUOUS = (
    "The same with other mutations: bands and squares that a constant is added to, after the idea of BET (Wang et al., "
    "ISSTA 2022), of whose paper only the abstract was at hand. They are the only mutations, or join the usual ones."
)
# Intervals need so many runs; with two they say nothing. Student's t for 95 %, from so many runs on.
_FEWEST_RUNS = 3
_STUDENT = (4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
_THREE = ("against the label", "of seeds that were right", "against the parent")


def guides_page(jobs: Sequence[JobResult], notes: Iterable[str]) -> str:
    """Return the page of guides: how they stand beside random mutation, and a table for each network."""
    parts = [_factors_table(jobs, _SEARCHES), _GUIDES, *notes]
    if other := _factors_table(jobs, _CONTINUOUS):
        parts += ["## Bands and squares", _SAID_OF_CONTINUOUS, other]
    for network, runs in _networks(jobs).items():
        usual = [way for way in WAYS if way in runs and way not in _CONTINUOUS]
        others = [way for way in _CONTINUOUS if way in runs]
        parts += [f"## {network}", _sizes(runs), _guides_table(runs, usual)]
        parts += [_guides_table(runs, others) if others else "", _curves(runs)]
    return "\n\n".join(part for part in parts if part)


def guides_lead(jobs: Sequence[JobResult]) -> str:
    """Say on which networks twice is found of what random mutation finds, by the default where it was run."""
    reached: list[str] = []
    missed: list[str] = []
    fewer: list[str] = []
    for network, runs in _networks(jobs).items():
        way = next((way for way in _SEARCHES if _factors(runs, way)), None)
        if way is None:
            continue
        factors = _factors(runs, way)
        lacks = [f"{name} {factors[name]:.2f} ×" for name in _DOUBLED if name in factors and factors[name] < _WANTED]
        fewer += [f"{name} on {network}" for name in _NO_FEWER if factors.get(name, 1.0) < 1]
        beside = [*([] if way == DEFAULT else [f"by {way}"]), *lacks]
        if "natural" not in factors:
            beside.append("natural ones not judged")
        (missed if lacks else reached).append(network + (f" ({', '.join(beside)})" if beside else ""))
    if not reached and not missed:
        return "The searches by margin, or random mutation to compare them with, were not run."
    said = "**Twice as many distinct faults, roots and natural faults as random mutation by the default search:**"
    found = [f"reached on {', '.join(reached)}"] if reached else []
    found += [f"not reached on {', '.join(missed)}"] if missed else []
    return f"{said} {'; '.join(found)}. Fewer pairs of classes or clusters: {', '.join(fewer) or 'nowhere'}."


def _factors_table(jobs: Sequence[JobResult], ways: Sequence[str]) -> str:
    """Return what searches find over what random mutation finds, network by network."""
    names = (*_DOUBLED, *_NO_FEWER)
    rows = []
    for network, runs in _networks(jobs).items():
        for way in ways:
            factors = _factors(runs, way)
            if factors:
                told = [_factor_in_words(runs, way, name, factors.get(name)) for name in names]
                rows.append(
                    [
                        network,
                        way + (" (the default)" if way == DEFAULT else ""),
                        str(len(_pairs(runs, way, "distinct"))),
                        *told,
                    ]
                )
    return markdown(["network", "searched by", "runs", *names], rows) if rows else ""


Runs = dict[str, list[dict[str, Any]]]


def _networks(jobs: Sequence[JobResult]) -> dict[str, Runs]:
    """Return the runs of every way, by network."""
    names = dict.fromkeys(job.parameters["network"] for job in jobs)
    return {network: _by(jobs, lambda job: job.parameters["way"], network) for network in names}


def _by(jobs: Sequence[JobResult], key: Callable[[JobResult], str], network: str) -> Runs:
    found: Runs = {}
    for job in jobs:
        if job.parameters["network"] == network:
            found.setdefault(key(job), []).append({**job.result, "run": job.parameters.get("run", 0)})
    return found


def _factors(runs: Runs, way: str) -> dict[str, float]:
    """Return what a way finds over what random finds: ratios of means over the runs that both have."""
    found = {}
    for name in (*_DOUBLED, *_NO_FEWER):
        pairs = _pairs(runs, way, name)
        told = [(ours, theirs) for ours, theirs in pairs if ours is not None and theirs is not None]
        if told and len(told) == len(pairs) and any(theirs for _, theirs in told):
            found[name] = sum(ours for ours, _ in told) / sum(theirs for _, theirs in told)
    return found


def _pairs(runs: Runs, way: str, name: str) -> list[tuple[float | None, float | None]]:
    """Return what a way and random find in the runs that both have, whose seeds are the same."""
    theirs = {run["run"]: run for run in runs.get(RANDOM, [])}
    return [
        (_told(ours, name), _told(theirs[ours["run"]], name)) for ours in runs.get(way, []) if ours["run"] in theirs
    ]


def _factor_in_words(runs: Runs, way: str, name: str, factor: float | None) -> str:
    """Return a factor with its interval, where runs of both from the same seeds found anything."""
    if factor is None:
        return "–"
    pairs = _pairs(runs, way, name)
    if len(pairs) < _FEWEST_RUNS or not all(our and their for our, their in pairs):
        return f"{factor:.2f} ×"
    logs = [log(our / their) for our, their in pairs if our and their]
    reach = _STUDENT[min(len(logs) - _FEWEST_RUNS, len(_STUDENT) - 1)] * stdev(logs) / sqrt(len(logs))
    return f"{factor:.2f} × ({exp(fmean(logs) - reach):.2f} to {exp(fmean(logs) + reach):.2f})"


def _sizes(runs: Runs) -> str:
    found = [run for some in runs.values() for run in some]
    low, high = min(run["calls"] for run in found), max(run["calls"] for run in found)
    return f"{found[0]['seeds']:,} seeds, {low:,} to {high:,} calls of the model in each campaign."


def _told(run: dict[str, Any], name: str) -> float | None:
    return (_rate if name in _DOUBLED else _count)(run, name)


def _count(run: dict[str, Any], name: str) -> float | None:
    return None if run.get(name) is None else float(run[name])


def _rate(run: dict[str, Any], name: str) -> float | None:
    return None if run.get(name) is None else 1000 * float(run[name]) / run["calls"]


def _guides_table(runs: Runs, ways: Sequence[str]) -> str:
    rates = ("distinct", "roots", "natural")
    header = ["searched by", "runs", *rates, "pairs", "clusters", "change", "FID", "mutants made per call"]
    rows = []
    for way in ways:
        some = runs[way]
        row = [way, str(len(some)), *(_over([_rate(run, name) for run in some], ".0f") for name in rates)]
        row += [_over([run[name] for run in some], ".0f") for name in ("pairs", "clusters")]
        row += [_over([run["change"] for run in some], ".3f"), _over([run.get("frechet") for run in some], ".1f")]
        row += [_over([run["mutants made"] / run["calls"] for run in some], ".1f")]
        rows.append(row)
    return markdown(header, rows)


def _curves(runs: Runs) -> str:
    """Return distinct faults as calls go on, for random and the default."""
    shown = [way for way in (RANDOM, "margin, forecast", DEFAULT) if way in runs]
    count = min((len(run["readings"]) for way in shown for run in runs[way]), default=0)
    if not shown or not count:
        return ""
    rows = []
    for place in range(count):
        calls = fmean(run["readings"][place][0] for run in runs[shown[0]])
        cells = [_over([run["readings"][place][1] for run in runs[way]], ".0f") for way in shown]
        rows.append([f"{calls:,.0f}", *cells])
    return "Distinct faults so far:\n\n" + markdown(["calls, about", *shown], rows)


def rules_page(jobs: Sequence[JobResult], notes: Iterable[str]) -> str:
    """Return the page of rules: every set under every criterion, then one rule switched at a time."""
    parts = [_RULES, *notes]
    if not all(job.result["stylised"] for job in jobs):
        parts.append(
            "Stylising took no part in some campaigns: its weights (`neuralcov data get adain`) were not there, or "
            "pictures are of 8×8 pixels."
        )
    for network in dict.fromkeys(job.parameters["network"] for job in jobs):
        here = [job for job in jobs if job.parameters["network"] == network]
        sizes = here[0].result
        parts.append(f"## {network}")
        parts.append(
            f"{sizes['seeds']:,} seeds, {sizes['wanted']:,} iterations, or {10 * sizes['wanted']:,} calls of the model "
            "if these come first."
        )
        for rules in SETS:
            plain = [job for job in here if job.parameters["rules"] == rules and not job.parameters["switched"]]
            runs = _by(plain, lambda job: job.parameters["criterion"], network)
            if runs:
                parts += [f"### {rules}", _rules_table("guided by", runs)]
        switched = [job for job in here if job.parameters["rules"] == "published"]
        for guide in (BASELINE, "NLC"):
            mine = [job for job in switched if job.parameters["criterion"] == guide]
            runs = _by(mine, lambda job: job.parameters["switched"] or "none", network)
            ordered = {name: runs[name] for name in ("none", *SWITCHED) if name in runs}
            if len(ordered) > 1:
                parts += [f"### published, one rule switched to ours, under {guide}", _rules_table("rule", ordered)]
    return "\n\n".join(parts)


def rules_lead(jobs: Sequence[JobResult]) -> str:
    """Say what share of the outputs is misread under each set of rules, guided by NLC and at random."""
    sentences = []
    for network in dict.fromkeys(job.parameters["network"] for job in jobs):
        found = {}
        for rules in SETS:
            runs = _by(
                [job for job in jobs if job.parameters["rules"] == rules and not job.parameters["switched"]],
                lambda job: job.parameters["criterion"],
                network,
            )
            both = [_misread(runs.get(guide, [])) for guide in ("NLC", BASELINE)]
            if None not in both:
                found[rules] = both
        if found:
            guided, unguided = (
                ", ".join(f"{found[rules][i]:.0f} % under `{rules}`" for rules in found) for i in (0, 1)
            )
            sentences.append(f"Of the outputs {network} misreads, guided by NLC, {guided}; at random, {unguided}.")
    return " ".join(sentences) or "Each row below changes one rule of the published set."


def _misread(runs: Sequence[dict[str, Any]]) -> float | None:
    """Return the mean share of outputs whose class is not the label, in per cent."""
    shares = [100 * run["faults"][_THREE[0]] / run["outputs"] for run in runs if run["outputs"]]
    return fmean(shares) if shares else None


def _rules_table(first: str, runs: Runs) -> str:
    rows = []
    for name, some in runs.items():
        shares = [
            _over([100 * run["faults"][way] / run["outputs"] if run["outputs"] else None for run in some], ".1f", " %")
            for way in _THREE
        ]
        sums = [_over([run[what] for run in some], ",.0f") for what in ("outputs", "distinct", "calls")]
        rows.append([name, str(len(some)), sums[0], *shares, *sums[1:]])
    return markdown([first, "runs", "outputs", *_THREE, "distinct faults", "calls"], rows)


def retraining_page(jobs: Sequence[JobResult], notes: Iterable[str]) -> str:
    """Return the page of retraining."""
    parts = [_RETRAINING, *notes]
    for network in dict.fromkeys(job.parameters["network"] for job in jobs):
        some = [job.result for job in jobs if job.parameters["network"] == network]
        first = some[0]
        parts.append(
            f"## {network}\n\n{first['faults']:,} faults among {first['trained on']:,} training inputs, "
            f"{first['passes']} {'pass' if first['passes'] == 1 else 'passes'} over them; {len(some)} "
            f"{'run' if len(some) == 1 else 'runs'}."
        )
        header = ["test set", *first["accuracy"]]
        rows = [
            [name, *(_over([100 * run["accuracy"][step][name] for run in some], ".2f") for step in first["accuracy"])]
            for name in next(iter(first["accuracy"].values()))
        ]
        parts.append(markdown(header, rows))
    return "\n\n".join(parts)


def retraining_lead(jobs: Sequence[JobResult]) -> str:
    """Say what training on faults changes, first and last row of the table: clean inputs, and new faults."""
    said = []
    for network in dict.fromkeys(job.parameters["network"] for job in jobs):
        runs = [job.result["accuracy"] for job in jobs if job.parameters["network"] == network]
        names = list(next(iter(runs[0].values())))
        (_, without, given) = ([fmean(100 * run[step][n] for run in runs) for n in names] for step in runs[0])
        said.append(
            f"{network} reads {given[-1]:.3g} % of {names[-1]} rightly, not {without[-1]:.3g} %, and clean inputs "
            f"{_points(given[0] - without[0])}"
        )
    return f"**With faults among its training inputs,** {'; '.join(said)} than with as much training without them."


def _points(change: float) -> str:
    return f"{abs(change):.1f} points {'better' if change > 0 else 'worse'}"


def _over(values: Sequence[float | None], form: str, unit: str = "") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    spread = f" ± {stdev(known):{form}}" if len(known) > 1 else ""
    return f"{fmean(known):{form}}{spread}{unit}"
