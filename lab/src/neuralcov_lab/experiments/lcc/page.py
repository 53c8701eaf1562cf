"""Write the page of LCC's proof from finished jobs, what it gets wrong first."""

from __future__ import annotations

from collections.abc import Sequence

from neuralcov.core.abundance import share_interval
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.lcc.honest_sections import (
    errors_section,
    errors_takeaway,
    forecast_section,
    forecast_takeaway,
    next_section,
    next_takeaway,
    relative_section,
    relative_takeaway,
)
from neuralcov_lab.experiments.lcc.judged import Judged, all_orders, jobs_by_part, score, wrong_orders
from neuralcov_lab.experiments.lcc.network_sections import (
    fooling_section,
    fooling_takeaway,
    stability_section,
    stability_takeaway,
)
from neuralcov_lab.experiments.lcc.plan import NEW
from neuralcov_lab.experiments.lcc.variants import LCC, VARIANTS, variants
from neuralcov_lab.experiments.tables import fold, markdown

# Orders among suites of different sizes; the others are at equal size.
_WHOLE = ("sizes", "copies, all", "copies, more")
_SECTIONS = (
    ("next", next_section, next_takeaway),
    ("forecast", forecast_section, forecast_takeaway),
    ("relative", relative_section, relative_takeaway),
    ("errors", errors_section, errors_takeaway),
    ("fooling", fooling_section, fooling_takeaway),
    ("stability", stability_section, stability_takeaway),
)


def proof_page(jobs: Sequence[JobResult], notes: Sequence[str], beside: Sequence[str] = ()) -> str:
    """Return the page.

    Args:
        jobs: of the proof.
        notes: paragraphs for its head.
        beside: paragraphs on LCC among all criteria, which other jobs measured.
    """
    parts = jobs_by_part(jobs)
    sections = [*notes]
    judged = list(all_orders(parts))
    if judged:
        sections += [*wrong_orders(judged), *_orders(judged)]
    sections += beside
    for part, write, _ in _SECTIONS:
        if part in parts:
            sections += write(parts[part])
    # Settings last: they matter to those who would change them.
    return "\n\n".join([*sections, *(_variants(judged) if judged else ())])


def proof_lead(jobs: Sequence[JobResult]) -> str:
    """Say how many known orders LCC and the others get right, where it is behind, and what its figures are worth."""
    parts = jobs_by_part(jobs)
    judged = list(all_orders(parts))
    lines = _orders_takeaway(judged) if judged else []
    lines += [take(parts[part]) for part, _, take in _SECTIONS if part in parts]
    return "\n".join(f"- {line}" for line in lines) or "Parts of the proof that are not about orders."


def _orders_takeaway(judged: Sequence[Judged]) -> list[str]:
    names = _names(judged)
    networks = len({one.subject for one in judged})
    right, total, _ = score(judged, LCC)
    low, high = share_interval(right, total)
    where = f"{networks} network{'s' * (networks > 1)}"
    lines = [
        f"**LCC puts {right} of {total} known orders right on {where},** {low:.0%} to {high:.0%} with 95 % certainty "
        f"({_others(judged, names)})."
    ]
    new = [one for one in judged if one.subject in NEW]
    if 0 < len(new) < len(judged):
        kept_out = len({one.subject for one in new})
        right, total, _ = score(new, LCC)
        lines.append(
            f"**On the {kept_out} networks that had no part in choosing its settings:** {right} of {total} "
            f"({_others(new, names)})."
        )
    behind: list[str] = []
    ahead: list[str] = []
    for group in dict.fromkeys(one.group for one in judged):
        own = [one for one in judged if one.group == group]
        right, total, _ = score(own, LCC)
        best = max((name for name in names if name != LCC), key=lambda name: score(own, name)[0])
        other = score(own, best)[0]
        if other != right:
            said = f"{group} ({right} of {total}; {best} {other})"
            (behind if other > right else ahead).append(said)
    if behind:
        lines.append(f"**Another criterion is ahead of it in:** {'; '.join(behind)}.")
    if ahead:
        lines.append(f"**It is ahead of every other in:** {'; '.join(ahead)}.")
    return lines


def _others(judged: Sequence[Judged], names: Sequence[str]) -> str:
    scores = {name: score(judged, name)[0] for name in names if name != LCC}
    return ", ".join(f"{name} {own}" for name, own in sorted(scores.items(), key=lambda s: -s[1]))


def _names(judged: Sequence[Judged]) -> list[str]:
    """Return LCC and the other criteria, without LCC's variants."""
    return [name for name in judged[0].signs if name not in VARIANTS]


def _orders(judged: Sequence[Judged]) -> list[str]:
    names = _names(judged)
    subjects = list(dict.fromkeys(one.subject for one in judged))
    header = ["criterion", "orders right", "95 % interval", "single draws right"]
    rows, by_subject = [], []
    for name in names:
        right, total, single = score(judged, name)
        low, high = share_interval(right, total)
        rows.append([name, f"{right} of {total}", f"{low:.0%} to {high:.0%}", f"{single:.1%}"])
        own = [score([one for one in judged if one.subject == subject], name)[:2] for subject in subjects]
        by_subject.append([name, *(f"{some} of {count}" for some, count in own)])
    groups = list(dict.fromkeys(one.group for one in judged))
    by_group = [
        [
            name,
            *("{} of {}".format(*score([one for one in judged if one.group == group], name)[:2]) for group in groups),
        ]
        for name in names
    ]
    by_size = [
        [
            name,
            _with_interval([one for one in judged if one.group in _WHOLE], name),
            _with_interval([one for one in judged if one.group not in _WHOLE], name),
        ]
        for name in names
    ]
    fails = [
        f"- {name}: {_few([one for one in judged if not one.right(name)], most=None)}" for name in names if name != LCC
    ]
    return [
        "## Orders",
        "An order is right if more than half of its draws are; a tie is wrong. Intervals are Wilson's, as if orders "
        "were independent, which they are not quite.",
        markdown(header, rows),
        "By way of measuring; nothing was measured on top of training data here:",
        markdown(["criterion", "alone, suites of different sizes", "at equal size"], by_size),
        "By what orders are about:",
        markdown(["criterion", *groups], by_group),
        fold("By network", markdown(["criterion", *subjects], by_subject)),
        fold("What the others get wrong, by network", "\n".join(fails)),
    ]


def _with_interval(judged: Sequence[Judged], name: str) -> str:
    right, total, _ = score(judged, name)
    low, high = share_interval(right, total)
    return f"{right} of {total}, {low:.0%} to {high:.0%}"


def _variants(judged: Sequence[Judged]) -> list[str]:
    rows = []
    base = score(judged, LCC)
    ranges: dict[str, list[int]] = {}
    for variant in variants(10**9):
        known = [one for one in judged if variant.name in one.signs]
        if not known:
            continue
        right, total, single = score(known, variant.name)
        lost = [one for one in known if one.right(LCC) and not one.right(variant.name)]
        won = [one for one in known if not one.right(LCC) and one.right(variant.name)]
        rows.append([variant.group, variant.name, f"{right} of {total}", f"{single:.1%}", _few(lost), _few(won)])
        if total == base[1] and variant.name != LCC:
            ranges.setdefault(variant.group, []).append(right)
    said = "; ".join(
        f"{group} {min(found)}" + (f" to {max(found)}" if max(found) > min(found) else "")
        for group, found in ranges.items()
    )
    better = [row[1] for row in rows if row[1] != LCC and row[4] == "0"]
    return [
        "## Settings",
        f"**The definition has {base[0]} of {base[1]} orders right; with one setting changed:** {said}. "
        + (f"{', '.join(better)} lose no order." if better else "Every variant loses some that the definition has."),
        "Exponent, weights of novel boxes and new decisions are no arguments: the lab works them out from the same "
        "projections. Where fewer training inputs calibrate, networks that have no more are left out.",
        fold(
            f"By variant, with the orders lost and won ({len(rows)} rows)",
            markdown(["setting", "variant", "orders right", "single draws", "lost", "won"], rows),
        ),
    ]


def _few(some: Sequence[Judged], most: int | None = 4) -> str:
    """Return how many orders, and what about."""
    groups: dict[str, int] = {}
    for one in some:
        groups[f"{one.subject}: {one.group}"] = groups.get(f"{one.subject}: {one.group}", 0) + 1
    listed = ", ".join(f"{name}{f' ×{count}' if count > 1 else ''}" for name, count in list(groups.items())[:most])
    rest = 0 if most is None else len(groups) - most
    return f"{len(some)}" + (f" ({listed}{f', {rest} more' if rest > 0 else ''})" if some else "")
