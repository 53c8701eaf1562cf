"""Results as Markdown: every table says what was expected, what came out, and what the paper has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean, median, stdev
from typing import Any

from neuralcov_lab.experiments import paper
from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, NOTHING, ON_TOP, Comparison
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.ranking import Score, Standing, family
from neuralcov_lab.experiments.timing import PLAIN

RIGHT, WRONG = "✓", "✗"
_SHARES = ("NC", "KMNC", "NBC", "SNAC", "TKNC", "SS", "NPC")
_COUNTS = ("TKNP", "CC", "LSC", "DSC", "MDSC")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table; the first column to the left, the others to the right.

    >>> print(markdown(["a", "b"], [["x", "1"]]))
    | a | b |
    |---|---:|
    | x | 1 |
    """
    lines = [_row(header), "|---|" + "---:|" * (len(header) - 1), *(_row(row) for row in rows)]
    return "\n".join(lines)


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def fold(summary: str, text: str) -> str:
    """Put a part of a page behind a fold."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def shown(criterion: str, value: float | None, spread: float = 0.0) -> str:
    """Write a value in its criterion's unit: shares in per cent, counts whole, the rest with four figures.

    >>> shown("NC(0.75)", 0.02154), shown("TKNP(1)", 9995.0), shown("NLC", 1.03456), shown("LVC", None)
    ('2.154 %', '9,995', '1.035', '–')
    >>> shown("NLC", 1.0, 0.25), shown("LSC(1)", 12345.5, 1389.0), shown("NLC", 9999.9)
    ('1 ± 0.25', '12,346 ± 1,389', '10,000')
    """
    if value is None:
        return "–"
    kind = family(criterion)
    factor, unit = (100.0, " %") if kind in _SHARES else (1.0, "")
    whole = kind in _COUNTS and value == round(value)
    text = f"{round(value):,}" if whole else _figures(factor * value, 4)
    return text + (f" ± {_figures(factor * spread, 2)}" if spread else "") + unit


def _figures(value: float, count: int) -> str:
    """Return so many figures at least; all before the point of a number that has more, up to a million."""
    return f"{value:,.0f}" if 10**count - 0.5 <= abs(value) < 1e6 else f"{value:.{count}g}"


def paper_shown(criterion: str, value: float | None) -> str:
    """Write a figure of the paper, whose shares are in per cent already."""
    return shown(criterion, value / 100 if value is not None and family(criterion) in _SHARES else value)


def suite_table(comparison: Comparison) -> str:
    """Return one order under every criterion: our values, the verdict, the paper's values and verdict."""
    suites = [suite for suite in comparison.suites if suite != NOTHING]
    beside = paper_applies(comparison)
    header = ["criterion", *suites, "as expected"]
    if beside:
        header += [f"paper: {suite}" for suite in suites] + ["paper"]
    rows = []
    for name in comparison.runs:
        means, spreads = comparison.means(name), comparison.deviations(name)
        row = [name, *(shown(name, m, s) for m, s in zip(means[: len(suites)], spreads, strict=False))]
        row.append(_verdict(comparison, name))
        if beside:
            row += [paper_shown(name, value) for value in _paper_values(comparison, name)]
            right = paper_right(comparison, name)
            row.append("–" if right is None else RIGHT if right else WRONG)
        rows.append(row)
    return markdown(header, rows)


def paper_applies(comparison: Comparison) -> bool:
    """Return whether the paper has figures measured this way."""
    return comparison.basis == (ALONE if comparison.experiment == "diversity-generative" else ON_TOP)


def paper_right(comparison: Comparison, name: str) -> bool | None:
    """Return whether the paper's figures fall along the order, ``None`` where it has not all of them."""
    values = _paper_values(comparison, name)
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not paper_applies(comparison):
        return None
    falling = all(above > below for above, below in pairwise(known))
    return falling and (NOTHING not in comparison.suites or known[-1] > 0)


def _paper_values(comparison: Comparison, name: str) -> list[float | None]:
    return [
        paper.figure(comparison.experiment, comparison.subject, suite, name)
        for suite in comparison.suites
        if suite != NOTHING
    ]


def agreement(comparison: Comparison) -> str:
    """For how many settings our verdict is the paper's."""
    judged = [name for name in comparison.runs if paper_right(comparison, name) is not None]
    if not judged:
        return ""
    same = [name for name in judged if paper_right(comparison, name) == comparison.right(name)]
    other = [name for name in judged if name not in same]
    said = f"Our verdict is the paper's for {len(same)} of {len(judged)} settings"
    return f"{said}; not for {', '.join(other)}." if other else f"{said}."


def verdict_table(found: Sequence[Comparison]) -> str:
    """Several orders on one network side by side, verdicts only; those of one label, on other criteria, as one."""
    most_first = sorted(found, key=lambda comparison: -len(comparison.runs))
    names = dict.fromkeys(name for comparison in most_first for name in comparison.runs)
    labels = dict.fromkeys(comparison.label for comparison in found)
    verdicts = {(c.label, name): _verdict(c, name) for c in found for name in c.runs}
    rows = [[name, *(verdicts.get((label, name), "–") for label in labels)] for name in names]
    return markdown(["criterion", *labels], rows)


def _verdict(comparison: Comparison, name: str) -> str:
    mark = RIGHT if comparison.right(name) else WRONG
    runs = len(comparison.runs[name])
    return mark if runs == 1 else f"{mark} {comparison.runs_right(name)}/{runs}"


def experiment_page(name: str, found: Sequence[Comparison], notes: Sequence[str], usual: str = "") -> str:
    """Return the page of one experiment on suites: verdicts first, then values.

    Args:
        name: the experiment.
        found: all comparisons.
        notes: paragraphs for its head.
        usual: labels that begin so, or all, are shown with their values; ``results.json`` has the others'.
    """
    own = [comparison for comparison in found if comparison.experiment == name]
    parts = [*notes, "## Verdicts"]
    for basis in (ON_TOP, ALONE, EQUAL):
        for subject in dict.fromkeys(c.subject for c in own if c.basis == basis):
            some = [c for c in own if c.basis == basis and c.subject == subject]
            orders = "; ".join(sorted({" > ".join(c.suites) for c in some}))
            parts += [f"### {subject}, {basis}", f"Expected: {orders}.", verdict_table(some)]
    parts.append("## Values")
    for comparison in own:
        if comparison.basis == EQUAL or comparison.label.startswith(usual):
            title = f"### {comparison.subject}, {comparison.label}, {comparison.basis}"
            parts += [title, _expected(comparison), suite_table(comparison)]
            parts += [agreement(comparison)] if agreement(comparison) else []
    return "\n\n".join(parts)


def _expected(comparison: Comparison) -> str:
    sizes = ", ".join(
        f"{suite} {size:,}" for suite, size in zip(comparison.suites, comparison.sizes, strict=True) if suite != NOTHING
    )
    order = " > ".join("0" if suite == NOTHING else suite for suite in comparison.suites)
    counts = sorted({len(runs) for runs in comparison.runs.values()})
    runs = " or ".join(map(str, counts))
    said = (
        "One run." if counts == [1] else f"{runs} runs: mean ± standard deviation, and in how many the order came out."
    )
    return f"Expected: {order}. Inputs: {sizes}. {said}"


def ranking_table(standings: Sequence[Standing]) -> str:
    """Return the criteria, most orders right first."""
    shares = ["orders right", "share", "share in one run", "mean over experiments", "pairs right"]
    header = ["criterion", *shares, "cost, × forward pass", "best setting"]
    rows = []
    for standing in standings:
        best = standing.best if standing.best == "–" else f"{standing.best} {standing.by_setting[standing.best]}"
        rows.append(
            [
                standing.criterion,
                str(standing.total),
                f"{standing.total.share:.0%}" if standing.total.judged else "–",
                f"{standing.share_once:.0%}" if standing.total.judged else "–",
                f"{standing.balanced:.0%}" if standing.total.judged else "–",
                f"{standing.pairs.share:.0%}" if standing.pairs.judged else "–",
                "–" if standing.cost is None else f"{standing.cost:.2f}",
                best,
            ]
        )
    return markdown(header, rows)


def bases_table(standings: Sequence[Standing]) -> str:
    """Return the shares of right orders by way of measuring, with their intervals."""
    bases = sorted({basis for standing in standings for basis in standing.by_basis})
    rows = []
    for standing in standings:
        scores = [standing.by_basis.get(basis) for basis in bases]
        rows.append([standing.criterion, *("–" if score is None else _with_interval(score) for score in scores)])
    return markdown(["criterion", *bases], rows)


def settings_table(standings: Sequence[Standing]) -> str:
    """Return the shares of right orders by setting, the best of each criterion first, with their intervals."""
    rows = []
    for standing in standings:
        ordered = sorted(standing.by_setting.items(), key=lambda item: -item[1].share)
        rows += [[name, str(score), _with_interval(score)] for name, score in ordered]
    return markdown(["setting", "orders right", "share"], rows)


def _with_interval(score: Score) -> str:
    low, high = score.interval
    return f"{score.share:.0%} ({low:.0%} to {high:.0%}) of {score.judged}"


def parts_table(standings: Sequence[Standing]) -> str:
    """Return the same by experiment and way of measuring."""
    parts = list(dict.fromkeys(part for standing in standings for part in standing.by_part))
    rows = [[part, *(str(standing.by_part.get(part, "–")) for standing in standings)] for part in parts]
    return markdown(["experiment", *(standing.criterion for standing in standings)], rows)


def time_table(jobs: Sequence[JobResult]) -> str:
    """Seconds and multiples of the forward pass, beside the paper's seconds on its own machine."""
    by_name = {job.parameters["criterion"]: job.result["seconds"] for job in jobs}
    # Jobs made before each ran the model in turn with its criterion share one run of it.
    beside = {job.parameters["criterion"]: job.result.get("plain", by_name.get(PLAIN)) for job in jobs}
    sizes = list(next(iter(by_name.values())))
    header = ["criterion", *(c for s in sizes for c in (f"s, batch {s}", f"× forward, batch {s}")), "paper, s"]
    rows = []
    for name, seconds in by_name.items():
        row, plain = [name], beside[name]
        for size in sizes:
            took = median(seconds[size])
            row += [_seconds(seconds[size]), "–" if plain is None else f"{took / median(plain[size]):.2f}"]
        theirs = paper.figures()["time"].get(name)
        rows.append([*row, "–" if theirs is None else f"{theirs:g}"])
    return markdown(header, rows)


def _seconds(runs: Sequence[float]) -> str:
    return f"{median(runs):.3g} ({min(runs):.3g}–{max(runs):.3g}, {len(runs)} runs)"


def order_table(jobs: Sequence[JobResult]) -> str:
    """Return the smallest and the largest value over orders and batch sizes, and how far apart they are."""
    rows = []
    for job in jobs:
        for name, by_size in job.result["values"].items():
            values = [value for runs in by_size.values() for value in runs]
            low, high = min(values), max(values)
            moved = (high - low) / abs(high) if high else 0.0
            by_batch = "; ".join(f"{size}: {_range(name, runs)}" for size, runs in by_size.items())
            rows.append([name, shown(name, low), shown(name, high), f"{moved:.2%}", by_batch, str(len(values))])
    return markdown(["criterion", "least", "most", "moves by", "by batch size", "orders × sizes"], rows)


def _range(name: str, values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return shown(name, low) if low == high else f"{shown(name, low)} to {shown(name, high)}"


def fuzz_table(jobs: Sequence[JobResult]) -> str:
    """Return what campaigns found, beside the paper's: counts of the first run, the rest as means over all."""
    header = ["guided by", "faults/outputs", "share", "runs", "seeds done", "IS", "FID", "classes", "entropy"]
    header.append("judged per s, fastest run")
    header += [f"paper: {what}" for what in ("faults/outputs", "IS", "FID", "classes", "entropy")]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        by_name.setdefault(job.parameters["criterion"], []).append(job.result)
    rows = []
    for name, runs in by_name.items():
        found = runs[0]
        row = [
            name,
            f"{found['faults']:,}/{found['outputs']:,}",
            _over_runs([100 * run["faults"] / run["outputs"] if run["outputs"] else None for run in runs], ".1f", " %"),
            str(len(runs)),
            f"{found['iterations']:,} of {found['wanted']:,}",
            _over_runs([run["natural"].get("inception score") for run in runs]),
            _over_runs([run["natural"].get("frechet distance") for run in runs]),
            str(found["classes"]),
            _over_runs([run["entropy"] for run in runs]),
            # Others on the same device only slow a campaign down.
            f"{max((run['judged'] / run['seconds'] for run in runs if run['seconds']), default=0):,.0f}",
        ]
        theirs = paper.figures()["fuzz"].get(name)
        if theirs is None:
            row += ["–"] * 5
        else:
            row += [f"{theirs['faults']:,}/{theirs['outputs']:,}", _plain(theirs["inception score"])]
            row += [_plain(theirs["frechet distance"]), str(theirs["classes"]), f"{theirs['entropy']:.2f}"]
        rows.append(row)
    return markdown(header, rows)


def _over_runs(values: Sequence[float | None], form: str = ".2f", unit: str = "") -> str:
    """Mean and standard deviation of what is known.

    >>> _over_runs([1.0, 2.0, None]), _over_runs([30.0], ".1f", " %"), _over_runs([None])
    ('1.50 ± 0.71', '30.0 %', '–')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    spread = f" ± {stdev(known):{form}}" if len(known) > 1 else ""
    return f"{mean(known):{form}}{spread}{unit}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
