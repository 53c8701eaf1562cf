"""The page of ``select``: wins and losses alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.selecting.clusters import FIRST
from neuralcov_lab.experiments.selecting.figures import PERCENTS, difference
from neuralcov_lab.experiments.selecting.judging import CLOTHO, FEWEST_FAULTS, LEARNT
from neuralcov_lab.experiments.selecting.orders import CANDIDATES, GINI, OURS, PROMPTS
from neuralcov_lab.experiments.selecting.summary import (
    APFD,
    CHOSEN,
    WITH,
    WITHOUT,
    Gain,
    JudgedSet,
    cost_of,
    more_faults,
    sentence_sets_of,
    sets_of,
    targets,
)
from neuralcov_lab.experiments.tables import markdown

_SETTING = (
    "Inputs without labels are put in order in 20 random halves of each test set, plain and shifted at two strengths "
    "(images: noise, contrast, brightness or blur; words replaced; noise added to rows). APFD, in points, says how "
    "soon faults show: 100 is best, 50 is a random order. Differences are to DeepGini in the same halves. The range "
    "beside the difference of one set holds 19 of 20 halves, which overlap; that beside a mean holds 95 of 100 draws "
    "of as many networks. Trust, surprise and ranges were learnt from 20,000 training inputs at most, evenly spaced, "
    f"as the product learns them. Sets with fewer than {FEWEST_FAULTS} faults are left out. No choice was made on "
    "networks marked *."
)
_TRIED = (
    "Which sum of ranks should be the default? The rule: of those that are never more than 1 point below DeepGini on "
    "sets without *, the one with the greatest mean. Sets with * had no part in it and check the choice. The default "
    f"is {OURS}."
)
_METHODS = (
    "Scores of the field: DeepGini, margin, entropy, max probability, LSA, DSA, MDSA. CTM puts first what covers most "
    "by itself, CAM what adds most to those before. CAM, k-centre, facility location and geometric diversity search "
    "for long, so they were made in one half of each set, and the last two search for 1,000 inputs; their differences "
    "are to DeepGini in that half. FAST's idea (features that blur confidence are pruned first) and Clotho's idea (a "
    "mixture of Gaussians over inputs known to pass) are rebuilt from the papers' texts, not the authors' code."
)
_LABELS = (
    "500 labels of each half, at most a fifth of it, are drawn at random; orders are of the other inputs. Clotho's "
    "idea chooses the inputs to label itself; the second table gives the same labels to learning from labels."
)
_PROMPTS = (
    "Texts ranked by the states of our own classifiers: by their distance from those of training texts, MDSC without "
    "classes, and by the rarity of LCC's kinds, which hold the class decided. APFD:"
)
_SENTENCES = (
    "A published sentence encoder that was not trained here, the small Universal Sentence Encoder, turns each text "
    "into 512 numbers, and a logistic regression on those of training texts decides. Its mistakes are the faults. "
    "Ranked is by the encoder's states alone, against those of training texts: it knows neither the task nor the "
    "answers. DeepGini reads the answers. APFD, the mean over 20 halves:"
)
_JUDGED = (
    "With 500 texts of each half judged, right or wrong: orders are of the other texts. What is learnt are weights of "
    "LSC, MDSC and LCC rarity. Labels drawn at random, then those that Clotho's idea asks for:"
)
_CLUSTERS = (
    "Faults that lie close together in another network's features, by HDBSCAN, count as one kind. The share of all "
    "kinds that show among the first inputs, mean over sets with at least 5 kinds."
)
_TIME = (
    "Processor time of one core for 1,000 inputs in batches of 100, after training data were run: the network alone, "
    "and the pass that ranks. A small network costs next to nothing beside looking up 20,000 training inputs."
)


def select_page(jobs: Sequence[JobResult], notes: Iterable[str]) -> str:
    """Return the page."""
    sets, read = sets_of(jobs), sentence_sets_of(jobs)
    if not sets:
        return "\n\n".join([*notes, f"No test set had {FEWEST_FAULTS} faults.", *_sentences(read)])
    strange = [job.result for job in jobs if "strangers" in job.result]
    jobs = [job for job in jobs if "sets" in job.result]
    parts = [
        *notes,
        _SETTING,
        "## Targets",
        _targets(sets, jobs),
        "## Against DeepGini",
        _against(sets),
        "## The choice",
        _TRIED,
        _choice(sets),
        "## All methods",
        _METHODS,
        _all_methods(sets),
        "APFD by test set:",
        _apfd(sets),
        "## With labels",
        _LABELS,
        _with_labels(sets),
        *_prompts(sets),
        *_sentences(read),
        *_strangers(strange),
        "## Kinds of faults",
        _CLUSTERS,
        _clusters(sets),
        "## Time",
        _TIME,
        _time(jobs),
    ]
    return "\n\n".join(parts)


def select_lead(jobs: Sequence[JobResult]) -> str:
    """Say by how much our orders find faults sooner than DeepGini's, with and without labels."""
    sets = sets_of(jobs)
    if not sets:
        return "Nothing to compare."
    plain, learnt = Gain.of(sets, WITHOUT, OURS), Gain.of(sets, WITH, LEARNT)
    networks = len({own.subject for own in sets})
    more = _percent(more_faults(sets, WITHOUT, OURS))
    said = (
        f"**Without labels our order has {more} faults among the first 5 % than DeepGini's,** the mean of {len(sets)} "
        f"test sets of {networks} networks. Its APFD is {_points(plain.mean)}, on {plain.better} of {plain.sets} sets "
        f"above; with some labels {_points(learnt.mean)}, on {learnt.better} above."
    )
    checked = [own for own in sets if own.kept_out]
    if checked:
        there, more = Gain.of(checked, WITHOUT, OURS), _percent(more_faults(checked, WITHOUT, OURS))
        said += f" On the networks that no choice was made on: {more} faults, APFD {_points(there.mean)}."
    missed = [target.words for target in targets(sets, []) if not target.reached]
    return said + (f" Targets not reached: {'; '.join(missed)}." if missed else " All targets of APFD are reached.")


def _percent(share: float) -> str:
    return f"{abs(100 * share):.0f} % {'more' if share >= 0 else 'fewer'}"


def _points(points: float) -> str:
    return f"{abs(points):.1f} points {'above' if points >= 0 else 'below'} DeepGini's"


def _targets(sets: Sequence[JudgedSet], jobs: Sequence[JobResult]) -> str:
    costs = [(job.parameters["subject"], cost_of(job)) for job in jobs]
    rows = [[own.words, own.found, "yes" if own.reached else "**no**"] for own in targets(sets, costs)]
    return markdown(["target", "found", "reached"], rows)


def _against(sets: Sequence[JudgedSet]) -> str:
    rows = []
    for own in sets:
        rows.append(
            [
                own.subject + ("*" if own.kept_out else ""),
                own.shift,
                f"{own.result['faults']:,} of {own.result['inputs']:,}",
                f"{100 * own.mean(WITHOUT, GINI, APFD):.1f}",
                _range(own.gain(WITHOUT, OURS)),
                _range(own.gain(WITH, LEARNT)),
                f"{own.mean(WITHOUT, GINI, 'at 5 %'):.3f} → {own.mean(WITHOUT, OURS, 'at 5 %'):.3f}",
            ]
        )
    rows.append(
        ["mean", "", "", "", str(Gain.of(sets, WITHOUT, OURS)), str(Gain.of(sets, WITH, LEARNT)), ""],
    )
    header = ["network", "set", "faults", GINI, OURS, LEARNT, "share of faults in the first 5 %: from → to"]
    return markdown(header, rows)


def _range(gain: tuple[float, float, float]) -> str:
    return f"{gain[0]:+.2f} ({gain[1]:+.2f} to {gain[2]:+.2f})"


def _choice(sets: Sequence[JudgedSet]) -> str:
    chosen, checked = [own for own in sets if not own.kept_out], [own for own in sets if own.kept_out]
    rows = []
    for method in ("margin", "trust", *CANDIDATES):
        row = [method]
        for some in (chosen, checked):
            if not some:
                row += ["–", "–", "–"]
                continue
            found = Gain.of(some, WITHOUT, method)
            row += [str(found), f"{found.least:+.2f}", f"{found.better} of {found.sets}"]
        rows.append(row)
    header = ["order", "mean", "worst", "above DeepGini", "mean *", "worst *", "above DeepGini *"]
    return markdown(header, rows)


def _all_methods(sets: Sequence[JudgedSet]) -> str:
    rows = []
    for method in _methods(sets):
        found = Gain.of(sets, WITHOUT, method)
        shares = [f"{fmean(own.mean(WITHOUT, method, f'at {percent} %') for own in sets):.3f}" for percent in PERCENTS]
        worst = f"{found.least:+.1f}"
        rows.append((found.mean, [method, str(found), worst, f"{found.better} of {found.sets}", *shares]))
    header = ["order", "APFD less DeepGini's", "worst", "above", *(f"faults in the first {p} %" for p in PERCENTS)]
    return markdown(header, [row for _, row in sorted(rows, key=lambda pair: -pair[0])])


def _apfd(sets: Sequence[JudgedSet]) -> str:
    methods = sorted(_methods(sets), key=lambda method: -fmean(own.mean(WITHOUT, method, APFD) for own in sets))
    rows = [[own.label, *(f"{100 * own.mean(WITHOUT, method, APFD):.1f}" for method in methods)] for own in sets]
    return markdown(["test set", *methods], rows)


def _with_labels(sets: Sequence[JudgedSet]) -> str:
    tables = []
    for part, methods in ((WITH, (OURS, LEARNT)), (CHOSEN, (OURS, LEARNT, CLOTHO))):
        rows = []
        for method in methods:
            found = Gain.of(sets, part, method)
            rows.append([method, str(found), f"{found.least:+.2f}", f"{found.better} of {found.sets}"])
        who = "Labels drawn at random:" if part == WITH else "Labels chosen as Clotho does:"
        tables += [who, markdown(["order", "APFD less DeepGini's", "worst", "above"], rows)]
    return "\n\n".join(tables)


def _prompts(sets: Sequence[JudgedSet]) -> list[str]:
    some = [own for own in sets if own.values(WITHOUT, PROMPTS, APFD)]
    if not some:
        return []
    rows = [
        [own.label, *(f"{100 * own.mean(WITHOUT, method, APFD):.1f}" for method in ("random", PROMPTS, GINI, OURS))]
        for own in some
    ]
    return ["## Hidden states alone", _PROMPTS, markdown(["test set", "random", PROMPTS, GINI, OURS], rows)]


def _sentences(sets: Sequence[JudgedSet]) -> list[str]:
    if not sets:
        return []
    methods = ("random", GINI, PROMPTS, "MDSA", "LSA", "LCC rarity")
    rows = []
    for own in sets:
        row = [own.label, f"{own.result['faults']:,} of {own.result['inputs']:,}"]
        row += [f"{100 * own.mean(WITHOUT, method, APFD):.1f}" for method in methods]
        apart = difference(own.values(WITHOUT, PROMPTS, APFD), own.values(WITHOUT, "random", APFD))
        row.append(_range((100 * apart[0], 100 * apart[1], 100 * apart[2])))
        row += [f"{own.mean(WITHOUT, method, 'at 5 %'):.3f}" for method in ("random", GINI, PROMPTS)]
        rows.append(row)
    first = [f"in the first 5 %: {method}" for method in ("random", GINI, PROMPTS)]
    found = markdown(["test set", "faults", *methods, f"{PROMPTS} less random", *first], rows)
    judged = []
    for own in sets:
        row = [own.label]
        for part, orders in ((WITH, (GINI, PROMPTS, LEARNT)), (CHOSEN, (GINI, LEARNT, CLOTHO))):
            row += [f"{100 * own.mean(part, method, APFD):.1f}" for method in orders]
        judged.append(row)
    header = ["test set", GINI, PROMPTS, LEARNT, f"{GINI}, asked", f"{LEARNT}, asked", f"{CLOTHO}, asked"]
    return ["## Sentence embeddings", _SENTENCES, found, _JUDGED, markdown(header, judged)]


def _strangers(results: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = []
    for result in results:
        found = result["strangers"]
        firsts = list(next(iter(found.values())))
        rows = [[name, *(str(own[first]) for first in firsts)] for name, own in found.items()]
        rows.append(["a random order", *(f"{int(first) * result['strange'] / result['pool']:.0f}" for first in firsts)])
        said = (
            f"Do texts unlike the known ones stand first? {result['strange']} of {result['pool']:,} texts are strange, "
            "the others posts as they are; so many of the strange ones stand among the first:"
        )
        parts += [said, markdown(["strange texts", *(f"first {first}" for first in firsts)], rows)]
    return parts


def _clusters(sets: Sequence[JudgedSet]) -> str:
    some = [own for own in sets if own.result["clusters"] >= 5]
    names = [f"clusters at {first}" for first in FIRST]
    rows = []
    for method in _methods(sets):
        row = []
        for name in names:
            values = [own.mean(WITHOUT, method, name) for own in some if own.values(WITHOUT, method, name)]
            row.append(f"{fmean(values):.3f}" if values else "–")
        rows.append([method, *row])
    if not some:
        return "No set has so many."
    rows.sort(key=lambda row: row[1:], reverse=True)
    return markdown(["order", *(f"first {first:,}" for first in FIRST)], rows)


def _time(jobs: Sequence[JobResult]) -> str:
    rows = []
    for job in jobs:
        seconds = job.result["seconds"]
        alone, ranking = seconds["the network alone"], seconds["ranking"]
        rows.append([job.parameters["subject"], f"{alone:.3f}", f"{ranking:.3f}", f"{cost_of(job):.1f}"])
    return markdown(["network", "s, alone", "s, ranking", "×"], rows)


def _methods(sets: Sequence[JudgedSet]) -> list[str]:
    return [method for method in sets[0].result[WITHOUT] if all(method in own.result[WITHOUT] for own in sets)]
