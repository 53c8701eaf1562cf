"""Write the page of LCC's proof from finished jobs, what it gets wrong first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from neuralcov.core.abundance import share_interval
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.lcc.honesty import FRESH, TEST
from neuralcov_lab.experiments.lcc.judged import Judged, all_orders, jobs_by_part, score, wrong_orders
from neuralcov_lab.experiments.lcc.stability import CLASSES
from neuralcov_lab.experiments.lcc.variants import LCC, VARIANTS, variants
from neuralcov_lab.experiments.tables import markdown

# Orders among suites of different sizes; the others are at equal size.
_WHOLE = ("sizes", "copies, all", "copies, more")


def proof_page(jobs: Sequence[JobResult], notes: Sequence[str]) -> str:
    """Return the page."""
    parts = jobs_by_part(jobs)
    sections = [*notes]
    judged = list(all_orders(parts))
    if judged:
        sections += [*wrong_orders(judged), *_orders(judged), *_variants(judged)]
    for part, write in (
        ("next", _next),
        ("relative", _relative),
        ("errors", _errors),
        ("fooling", _fooling),
        ("stability", _stability),
    ):
        if part in parts:
            sections += write(parts[part])
    return "\n\n".join(sections)


def proof_lead(jobs: Sequence[JobResult]) -> str:
    """Say how many known orders LCC and the others get right, and how near 1 ``relative`` is where it should be."""
    parts = jobs_by_part(jobs)
    judged = list(all_orders(parts))
    said = []
    if judged:
        scores = {name: score(judged, name)[:2] for name in judged[0].signs if name not in VARIANTS}
        right, total = scores.pop(LCC)
        others = ", ".join(f"{name} {own}" for name, (own, _) in sorted(scores.items(), key=lambda s: -s[1][0]))
        networks = len({one.subject for one in judged})
        said.append(f"**LCC puts {right} of {total} known orders right on {networks} networks** ({others}).")
    if "relative" in parts:
        fresh = [
            mean(found["relative"])
            for result in parts["relative"].values()
            for number, own in result["calibrations"].items()
            for size, found in own.get(FRESH, {}).items()
            if int(size) <= int(number)
        ]
        if fresh:
            said.append(
                f"`relative` is {min(fresh):.2f} to {max(fresh):.2f} for fresh training inputs, where it should be "
                "1.0, up to as many as it was calibrated with."
            )
    return " ".join(said) or "Parts of the proof that are not about orders."


def _orders(judged: Sequence[Judged]) -> list[str]:
    names = [name for name in judged[0].signs if name not in VARIANTS]
    subjects = list(dict.fromkeys(one.subject for one in judged))
    header = ["criterion", "orders right", "95 % interval", "single draws right", *subjects]
    rows = []
    for name in names:
        right, total, single = score(judged, name)
        low, high = share_interval(right, total)
        by_subject = [score([one for one in judged if one.subject == subject], name)[:2] for subject in subjects]
        cells = [f"{some} of {count}" for some, count in by_subject]
        rows.append([name, f"{right} of {total}", f"{low:.0%} to {high:.0%}", f"{single:.1%}", *cells])
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
        f"- {name}: " + ("; ".join(f"{one.order} ({one.subject})" for one in judged if not one.right(name)) or "none")
        for name in names
        if name != LCC
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
        "<details><summary>What the others get wrong</summary>",
        "\n".join(fails),
        "</details>",
    ]


def _with_interval(judged: Sequence[Judged], name: str) -> str:
    right, total, _ = score(judged, name)
    low, high = share_interval(right, total)
    return f"{right} of {total}, {low:.0%} to {high:.0%}"


def _variants(judged: Sequence[Judged]) -> list[str]:
    rows = []
    base = score(judged, LCC)
    for variant in variants(10**9):
        known = [one for one in judged if variant.name in one.signs]
        if not known:
            continue
        right, total, single = score(known, variant.name)
        lost = [one for one in known if one.right(LCC) and not one.right(variant.name)]
        won = [one for one in known if not one.right(LCC) and one.right(variant.name)]
        rows.append([variant.group, variant.name, f"{right} of {total}", f"{single:.1%}", _few(lost), _few(won)])
    return [
        "## Settings",
        f"One setting changed at a time; the definition has {base[0]} of {base[1]} ({base[2]:.1%} of single draws). "
        "Exponent, weights of novel boxes and new decisions are no arguments: the lab works them out from the same "
        "projections.",
        markdown(["setting", "variant", "orders right", "single draws", "lost", "won"], rows),
    ]


def _few(some: Sequence[Judged]) -> str:
    """Return how many orders, and what about."""
    groups: dict[str, int] = {}
    for one in some:
        groups[f"{one.subject}: {one.group}"] = groups.get(f"{one.subject}: {one.group}", 0) + 1
    listed = ", ".join(f"{name}{f' ×{count}' if count > 1 else ''}" for name, count in list(groups.items())[:4])
    rest = len(groups) - 4
    return f"{len(some)}" + (f" ({listed}{f', {rest} more' if rest > 0 else ''})" if some else "")


def _next(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = []
    for subject, result in results.items():
        for first, found in result["splits"].items():
            for after in (key for key in found if key.isdigit()):
                apart = [said - seen for said, seen in zip(found["said"], found[after], strict=True)]
                rows.append(
                    [
                        subject,
                        f"{int(first):,}",
                        f"{int(after):,}",
                        f"{mean(found['said']):.4f}",
                        f"{mean(found[after]):.4f}",
                        f"{mean(apart):+.4f}",
                        f"{stdev(apart):.4f}",
                    ]
                )
    header = ["subject", "inputs so far", "inputs to come", "`next` said", "seen", "apart by", "deviation"]
    return [
        "## What `next` foretells",
        "The test set split at random: `next` of the first part beside the share of the following inputs whose kind "
        "the first part had not shown, medians over layers, means over splits. In the figure points are splits and "
        "crosses layers.",
        "![What next says and what is seen](plots/lcc-next.png)",
        markdown(header, rows),
    ]


def _relative(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    every = [own for r in results.values() for own in r["calibrations"].values()]
    sizes = sorted({int(n) for own in every for suite in (FRESH, TEST) for n in own.get(suite, {})})
    rows = []
    for subject, result in results.items():
        for number, own in result["calibrations"].items():
            for suite in (FRESH, TEST):
                if suite in own:
                    both = {
                        int(n): [mean(found[k]) for k in ("relative", "in parts")] for n, found in own[suite].items()
                    }
                    cells = [" / ".join(f"{m:.2f}" for m in both[size]) if size in both else "–" for size in sizes]
                    rows.append([subject, f"{int(number):,}", suite, *cells])
    return [
        "## `relative` of inputs like training data",
        "It should be 1.0 whatever the number of inputs (columns) and of training inputs (rows), up to as many "
        "inputs as training inputs, and ten times as many below 5,000.",
        "The second number expects known kinds and new decisions apart, the latter as Chao1 does. It is no figure of "
        "the definition; its form was chosen, the better of two, on convnet-fashion-mnist, mlp-mnist and mlp-letter: "
        "only other subjects test it. The figure shows the first. Whether a test set far above 1 tells of the "
        "network or of the figure, this table does not say.",
        _spread_of_relative(results),
        "![relative by size](plots/lcc-relative.png)",
        markdown(["subject", "training inputs", "suite", *(f"{size:,}" for size in sizes)], rows),
    ]


def _spread_of_relative(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the least and the most of both ways, for fresh training inputs and test sets of every subject."""
    rows = []
    for subject, result in results.items():
        for suite in (FRESH, TEST):
            cells = []
            for beyond in (False, True):
                found = [
                    [mean(figures[key]) for key in ("relative", "in parts")]
                    for number, own in result["calibrations"].items()
                    for n, figures in own.get(suite, {}).items()
                    if (int(n) > int(number)) == beyond
                ]
                columns = list(zip(*found, strict=True)) or [(), ()]
                cells += [f"{min(column):.2f} to {max(column):.2f}" if column else "–" for column in columns]
            rows.append([subject, suite, *cells])
    header = ["subject", "suite", "up to N inputs", "in two parts", "beyond N", "in two parts"]
    return markdown(header, rows)


def _errors(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = []
    for subject, result in results.items():
        for suite, by_size in result["suites"].items():
            for size, found in by_size.items():
                for figure in ("value", "relative"):
                    own = found[figure]
                    rows.append(
                        [
                            subject,
                            suite,
                            f"{int(size):,}",
                            figure,
                            f"{own['mean']:.4f}",
                            f"{own['deviation']:.4f}",
                            f"{own['error']:.4f}",
                            f"{own['covers mean']:.0%}",
                            f"{own['covers pairs']:.0%}",
                        ]
                    )
    header = ["subject", "suite", "inputs", "figure", "mean", "deviation of draws", "error stated"]
    return [
        "## Errors",
        "The delete-a-fold jackknife's error beside how far fresh draws differ. ±2 errors should cover the mean of all "
        "draws in 95 % of cases, and the difference of two draws be within two errors of it as often.",
        markdown([*header, "covers the mean", "covers another draw"], rows),
    ]


def _fooling(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    sections = [
        "## Suites made to fool it",
        "Other criteria as multiples of what they give the test inputs: above 1 they call the suite more varied.",
    ]
    for subject, result in results.items():
        suites = result["suites"]
        names = [name for name in next(iter(suites.values()))[0] if name != "inputs"]
        own = [name for name in names if name.startswith("LCC.") and name != "LCC.expected_off_map"]
        others = [name for name in names if not name.startswith("LCC.")]
        rows = []
        base = {name: mean(draw[name] for draw in suites["test"]) for name in names}
        for suite, draws in suites.items():
            means = {name: mean(draw[name] for draw in draws) for name in names}
            rows.append(
                [
                    suite,
                    f"{round(mean(draw['inputs'] for draw in draws)):,}",
                    *(f"{means[name]:.3f}" for name in own),
                    *(f"{means[name] / base[name]:.2f}" if base[name] else "–" for name in others),
                ]
            )
        expected = mean(draw["LCC.expected_off_map"] for draw in suites["test"])
        sections += [
            f"### {subject}",
            f"Fresh training inputs are expected to lie off the map in {expected:.2%} of cases.",
            markdown(["suite", "inputs", *(name.removeprefix("LCC.") for name in own), *others], rows),
        ]
    return sections


def _stability(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    sections = [
        "## Across checkpoints and seeds",
        "The same test inputs on every model, calibrated anew for each: deviation over mean, in per cent. The last "
        "column tells how many such deviations, over all models, the gap between the test inputs and as many of half "
        "the classes is: below 2, a gate would not see that half of the classes are missing.",
    ]
    for subject, result in results.items():
        models = result["models"]
        last = max(model["steps"] for model in models)
        rows = []
        for name in models[0]["suites"]["test"]:
            every = [model["suites"]["test"][name] for model in models]
            late = [m["suites"]["test"][name] for m in models if m["steps"] * 4 >= last]
            ends = [m["suites"]["test"][name] for m in models if m["steps"] == last]
            gaps = [m["suites"]["test"][name] - m["suites"][CLASSES][name] for m in models]
            shown = f"{min(every):.3g} to {max(every):.3g}"
            rows.append(
                [name, shown, *(_spread(some) for some in (every, late, ends)), f"{_apart(mean(gaps), stdev(every))}"]
            )
        accuracy = [model["accuracy"] for model in models]
        seeds = len({model["seed"] for model in models})
        steps = sorted({model["steps"] for model in models})
        header = ["criterion", "values", "all models", "last quarter of steps", "seeds at the end", "gap / deviation"]
        sections += [
            f"### {subject}",
            f"{seeds} seeds, checkpoints after {', '.join(map(str, steps))} steps, accuracy {min(accuracy):.1%} to "
            f"{max(accuracy):.1%}, {result['inputs']:,} inputs.",
            markdown(header, rows),
        ]
    return sections


def _spread(values: Sequence[float]) -> str:
    middle = mean(values)
    return f"{stdev(values) / abs(middle):.1%}" if len(values) > 1 and middle else "–"


def _apart(gap: float, deviation: float) -> str:
    return f"{gap / deviation:.1f}" if deviation else "–"
