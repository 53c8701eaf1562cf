"""Write how LCC does where other jobs measured all criteria, each with the setting that serves it best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neuralcov_lab.experiments.companions import LATER
from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, ON_TOP, Comparison, comparisons
from neuralcov_lab.experiments.jobs import JobFolder
from neuralcov_lab.experiments.ranking import Score, beside, family
from neuralcov_lab.experiments.tables import markdown

# A folder of results within that of the others: the whole panel, LCC among them, made on two cores.
PLACE = "small"
_BASES = (ALONE, EQUAL, ON_TOP)


@dataclass
class SettingScore:
    """Count the orders that one setting gets right, by way of measuring and by experiment."""

    total: Score = field(default_factory=Score)
    by_basis: dict[str, Score] = field(default_factory=dict)
    by_part: dict[str, Score] = field(default_factory=dict)


def panel_section(folder: JobFolder) -> list[str]:
    """Compare LCC with the best setting of each other criterion on the orders of a panel, if one was made."""
    inner = JobFolder(folder.path / PLACE)
    if not (inner.path / "plan.json").is_file():
        return []
    found, scale = comparisons(inner), inner.plan()[0]
    every = beside(found, LATER)
    alike = [one for one in every if one.experiment not in scale.made_up]
    if not alike:
        return []
    chosen = best_settings(alike)
    known = {family(name) for name in chosen}
    left_out = [one for one in every if one.experiment in scale.made_up]
    toy = (
        f" Texts and images of a generator are made up at this scale: {len(left_out)} orders among them, of which "
        f"{LATER} gets {sum(one.right(LATER) for one in left_out)} right, are left out."
        if left_out
        else ""
    )
    # NPC's jobs are its own: a relevance pass for each input costs too much for the others' sizes.
    apart = [one for one in found if LATER not in {family(name) for name in one.runs}]
    ends = "; ".join(f"{name} {own.total}" for name, own in best_settings(apart).items() if family(name) not in known)
    rows = [
        [name, f"{own.total.right} of {own.total.judged}", *(_with_interval(own.by_basis.get(b)) for b in _BASES)]
        for name, own in chosen.items()
    ]
    networks = len({one.subject for one in alike})
    return [
        f"## {LATER} in the whole panel, at a small scale",
        panel_takeaway(chosen),
        f"{len(alike)} orders on {networks} networks, at the scale `{scale.name}`, made on two cores. "
        f"{LATER} is as defined; the others have whichever of their settings gets most orders right here, which "
        f"flatters them ([all settings]({PLACE}/ranking.md)). Intervals are Wilson's, as if orders were independent, "
        f"which they are not quite.{toy}" + (f" On suites of its own: {ends}." if ends else ""),
        markdown(["criterion", "orders right", *_BASES], rows),
    ]


def best_settings(found: Sequence[Comparison]) -> dict[str, SettingScore]:
    """Return LCC as defined and the setting of each other criterion that gets most orders right, most first."""
    scores: dict[str, SettingScore] = {}
    for one in found:
        for name in one.runs:
            own, right = scores.setdefault(name.replace(", by=label", ""), SettingScore()), one.right(name)
            part = f"{one.experiment}, {one.basis}"
            for score in (
                own.total,
                own.by_basis.setdefault(one.basis, Score()),
                own.by_part.setdefault(part, Score()),
            ):
                score.add(right)
    best: dict[str, str] = {}
    for name, own in scores.items():
        kind = family(name)
        if kind == LATER:
            best[kind] = LATER
        elif kind not in best or own.total.right > scores[best[kind]].total.right:
            best[kind] = name
    return {name: scores[name] for name in sorted(best.values(), key=lambda name: -scores[name].total.share)}


def panel_takeaway(chosen: dict[str, SettingScore]) -> str:
    """Say how many orders LCC gets right, who gets more, and where it is behind and ahead."""
    own = chosen[LATER]
    # Those judged on fewer orders, as NPC is, had another question.
    others = {n: s for n, s in chosen.items() if n != LATER and 2 * s.total.judged > own.total.judged}
    more = [f"{name} {s.total.right}" for name, s in others.items() if s.total.share > own.total.share]
    said = f"**{LATER} gets {own.total.right} of {own.total.judged} orders right; " + (
        f"more are right under {', '.join(more)}.**" if more else "no other criterion gets more right.**"
    )
    behind: list[str] = []
    ahead: list[str] = []
    for part, score in own.by_part.items():
        known = {name: s.by_part[part] for name, s in others.items() if part in s.by_part}
        if known:
            best = max(known, key=lambda name: known[name].share)
            if known[best].share != score.share:
                line = f"{part} ({score}; {best} {known[best]})"
                (behind if known[best].share > score.share else ahead).append(line)
    if behind:
        said += f" At least one other is ahead of it in {'; '.join(behind)}."
    if ahead:
        said += f" It is ahead of all in {'; '.join(ahead)}."
    return said


def _with_interval(score: Score | None) -> str:
    if score is None:
        return "–"
    low, high = score.interval
    return f"{score}, {low:.0%} to {high:.0%}"
