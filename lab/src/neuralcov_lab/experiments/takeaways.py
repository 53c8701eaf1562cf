"""Begin each page with what a reader should take away: a title, a paragraph made from the figures, a picture.

The sentences are made from the same data as the tables below them. What a figure means is written here; which criteria
it holds for is computed, so that a page that is made anew from other jobs says what those jobs say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, ON_TOP, Comparison
from neuralcov_lab.experiments.fuzzing import RANDOM
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.ranking import Score, Standing, family
from neuralcov_lab.experiments.tables import fold

TITLES = {
    "diversity-image": "Test images against noisy copies of a few of them",
    "diversity-text": "Test reviews against copies of a few with their words shuffled",
    "diversity-generative": "Images of a generator: fewer, or of fewer classes",
    "faults": "Attacked training images against the test set",
    "faults-test": "Attacked test images against the test set",
    "perturbations": "Test images against perturbed ones that keep their class",
    "time": "What measuring costs",
    "order": "One suite in many orders and batch sizes",
    "fuzz": "Campaigns guided by each criterion, and by none",
    "lcc": "LCC, put to the proof",
    "select": "Which unlabelled inputs to look at first",
    "fuzz-guides": "Ways to search for faults",
    "fuzz-rules": "The fuzzing rules of the paper, of its code, and ours",
    "fuzz-retraining": "Training on faults that were found",
    "ranking": "All criteria over all orders",
}
_ATTACKED = "Images that an attack made the network misread should count for more than the test set."
EXPECTED = {
    "diversity-image": (
        "New images should count for more than noisy copies of a few, and whole suites for more than narrow ones."
    ),
    "diversity-text": "Reviews should count for more than copies of a few of them with their words in another order.",
    "diversity-generative": "More images should count for more than fewer, and all classes for more than some.",
    "faults": _ATTACKED,
    "faults-test": _ATTACKED,
    "perturbations": "New images should count for more than images changed so little that their class stays.",
}
_FOR_THIS = (
    "These orders are the paper's notion of diversity: a criterion that gets them right has not thereby found a bug."
)
# Ways of measuring, in the order in which pages tell of them.
OPENINGS = {ON_TOP: "On top of training data", ALONE: "Alone", EQUAL: "At equal size"}
_ALWAYS_SHOWN = ("LVC", "NLC")
_PLOTS = {
    "time": "Seconds by criterion",
    "order": "Values over orders and batch sizes",
    "fuzz": "Mutants kept under each criterion",
    "ranking": "Share of orders right by criterion",
    "lcc": "Share of orders right by criterion",
    "select": "APFD above DeepGini's by test set",
} | dict.fromkeys(EXPECTED, "Share of orders right by setting")
_LONG = 20
_TABLE = re.compile(r"(?:^\|.*\|$\n?)+", re.MULTILINE)
_FOLD = re.compile(r"(<details>.*?</details>)", re.DOTALL)


def page(name: str, lead: str, text: str, drawn: bool = True) -> str:
    """Put title, takeaway and figure before a page, and long tables behind a fold.

    Args:
        name: the experiment.
        lead: what to take away.
        text: the rest of the page.
        drawn: whether there is a figure.
    """
    parts = [f"# {TITLES[name]}", lead]
    if drawn and name in _PLOTS:
        parts.append(f"![{_PLOTS[name]}](plots/{plot_of(name)}.png)")
    # What is behind a fold already needs no other.
    text = "".join(part if part.startswith("<details>") else _TABLE.sub(_folded, part) for part in _FOLD.split(text))
    return "\n\n".join([*parts, text]) + "\n"


def plot_of(name: str) -> str:
    """Return the name of the plot at the head of a page."""
    return "lcc-orders" if name == "lcc" else f"orders-{name}" if name in EXPECTED else name


def _folded(match: re.Match[str]) -> str:
    table = match[0].rstrip("\n")
    rows = table.count("\n") - 1
    if rows <= _LONG:
        return match[0]
    return fold(f"Show the table ({rows} rows)", table) + ("\n" if match[0].endswith("\n") else "")


def of_orders(name: str, found: Sequence[Comparison]) -> str:
    """Say which criteria put the suites of an experiment in order, by way of measuring."""
    lines = []
    for basis, opening in OPENINGS.items():
        scores = scores_by_setting([c for c in found if c.experiment == name and c.basis == basis])
        if scores:
            lines.append(f"- **{opening}:** {_sides(scores)}.")
    return "\n\n".join([EXPECTED[name], "\n".join(lines), _FOR_THIS])


def scores_by_setting(found: Sequence[Comparison]) -> dict[str, Score]:
    """Count, by setting of a criterion, the orders that are right."""
    scores: dict[str, Score] = {}
    for comparison in found:
        for setting in comparison.runs:
            scores.setdefault(setting.replace(", by=label", ""), Score()).add(comparison.right(setting))
    return scores


def _sides(scores: Mapping[str, Score]) -> str:
    """Name the settings that are always right, those that never are, and how those without a setting do."""
    always = [name for name, score in scores.items() if score.right == score.judged]
    never = [name for name, score in scores.items() if not score.right]
    if len(never) == len(scores):
        return "no criterion is right in any order"
    if always:
        parts = [f"right in every order: {_named(always, scores)}"]
    else:
        best = max(scores, key=lambda name: scores[name].share)
        parts = [f"no criterion is right in every order, {best} in most ({_counted(scores[best])})"]
    if never:
        parts.append(f"right in none: {_named(never, scores)}")
    between = [name for name in _ALWAYS_SHOWN if name in scores and name not in (*always, *never)]
    return "; ".join([*parts, *(f"{name} is right in {_counted(scores[name])}" for name in between)])


def _named(some: Sequence[str], scores: Mapping[str, Score]) -> str:
    """List settings, and only the criterion where all of its settings are meant."""
    names: dict[str, None] = {}
    for setting in some:
        own = [other for other in scores if family(other) == family(setting)]
        names.setdefault(family(setting) if len(own) > 1 and set(own) <= set(some) else setting)
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def of_ranking(standings: Sequence[Standing]) -> str:
    """Say who gets most orders right, and that this is one notion of diversity."""
    judged = [standing for standing in standings if standing.total.judged]
    if not judged:
        return "Nothing was judged yet."
    best, last = judged[0], min(judged, key=lambda standing: standing.total.share)
    said = (
        f"**{best.criterion} gets most orders right, {_counted(best.total)}, and {last.criterion} the smallest share, "
        f"{_per_cent(last.total.share)}.**"
    )
    own = [f"{s.criterion} gets {_per_cent(s.total.share)}" for s in judged if s.criterion in _ALWAYS_SHOWN]
    if own:
        said += f" Of the two that need no setting and look at whole layers, {' and '.join(own)}."
    shares = {standing.criterion: _usual_shares(standing) for standing in judged}
    name = max(shares, key=lambda name: max(shares[name]) - min(shares[name]))
    if max(shares[name]) > min(shares[name]):
        low, high = _per_cent(min(shares[name])), _per_cent(max(shares[name]))
        said += f" Settings can matter as much as the criterion: {name} gets from {low} to {high}."
    return f"{said} {_FOR_THIS}"


def _usual_shares(standing: Standing) -> list[float]:
    """Return the shares of the settings that were judged at least half as often as the one judged most often."""
    return [score.share for score in standing.by_setting.values() if 2 * score.judged >= standing.orders]


def of_time(costs: Mapping[str, float]) -> str:
    """Say how many forward passes measuring takes."""
    if not costs:
        return "No criterion was timed beside the model alone."
    dearest = max(costs, key=lambda name: costs[name])
    cheap = sum(cost <= 1.3 for cost in costs.values())
    return (
        f"**Measuring takes {median(costs.values()):.1f} times as long as running the model alone** in the median of "
        f"{len(costs)} criteria. {cheap} take at most 1.3 times as long; {dearest} takes longest, {costs[dearest]:.1f} "
        "times."
    )


def of_order(jobs: Sequence[JobResult]) -> str:
    """Say whose value depends on the order and batches of the inputs."""
    moved, still = {}, 0
    for job in jobs:
        for name, by_size in job.result["values"].items():
            values = [value for runs in by_size.values() for value in runs]
            low, high = min(values), max(values)
            if high - low > 1e-6 * abs(high):
                moved[name] = (low, high)
            else:
                still += 1
    if not moved:
        return f"**The order and batches of the inputs change no value** of {still} settings."
    most = max(moved, key=lambda name: 1 - moved[name][0] / moved[name][1])
    low, high = moved.pop(most)
    said = f"**{most} gives anything from {low:.3g} to {high:.3g} for the same inputs,** by their order and batches."
    if moved:
        widest = max(100 - 100 * low / high for low, high in moved.values())
        said += f" {', '.join(moved)} move by up to {widest:.1f} %."
    return f"{said} The other {still} settings give the same value every time."


def of_campaigns(jobs: Sequence[JobResult], few: int = 100) -> str:
    """Say whether guidance by coverage finds faults more often than none does."""
    shares: dict[str, float] = {}
    for name in dict.fromkeys(job.parameters["criterion"] for job in jobs):
        runs = [job.result for job in jobs if job.parameters["criterion"] == name]
        if fmean(run["outputs"] for run in runs) >= few or name == RANDOM:
            shares[name] = fmean(run["faults"] / run["outputs"] for run in runs if run["outputs"])
    if RANDOM not in shares or len(shares) < 2:
        return f"There is no random campaign to compare with, or no other with {few} outputs."
    base = shares.pop(RANDOM)
    best = max(shares, key=lambda name: shares[name])
    above = sum(share > base for share in shares.values())
    verdict = (
        f"Guidance by {above} of {len(shares)} criteria makes an output likelier to be a fault."
        if above
        else "Guidance by coverage makes an output no likelier to be a fault."
    )
    return (
        f"**{verdict}** At random {100 * base:.1f} % of the outputs are faults; under {best}, the best criterion with "
        f"at least {few} outputs, {100 * shares[best]:.1f} %."
    )


def _counted(score: Score) -> str:
    return f"{score.right} of {score.judged}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.0f} %"
