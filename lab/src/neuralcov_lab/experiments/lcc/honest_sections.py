"""Write what the page of LCC's proof says of the figures beside the value: ``next``, ``relative`` and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import mean, stdev
from typing import Any

from neuralcov_lab.experiments.lcc.honesty import FRESH, TEST
from neuralcov_lab.experiments.tables import fold, markdown

Results = Mapping[str, Mapping[str, Any]]


def next_section(results: Results) -> list[str]:
    """Say how far ``next`` was from what the following inputs showed."""
    rows = [
        [
            subject,
            f"{first:,}",
            f"{after:,}",
            f"{mean(said):.4f}",
            f"{mean(seen):.4f}",
            f"{mean(apart):+.4f}",
            f"{stdev(apart):.4f}",
        ]
        for subject, first, after, said, seen, apart in _splits(results)
    ]
    header = ["subject", "inputs so far", "inputs to come", "`next` said", "seen", "apart by", "deviation"]
    return [
        "## What `next` foretells",
        next_takeaway(results),
        "The test set split at random: `next` of the first part beside the share of the following inputs whose kind "
        "the first part had not shown, medians over layers, means over splits. In the figure points are splits and "
        "crosses layers.",
        "![What next says and what is seen](plots/lcc-next.png)",
        fold(f"By test set and size ({len(rows)} rows)", markdown(header, rows)),
    ]


def next_takeaway(results: Results) -> str:
    """Say by how much ``next`` misses on average, and in single splits."""
    misses: dict[int, list[float]] = {}
    for _, _, after, _, _, apart in _splits(results):
        misses.setdefault(after, []).append(mean(apart))
    said = "; ".join(
        f"the next {after:,} by {min(found):+.3f} to {max(found):+.3f}" for after, found in sorted(misses.items())
    )
    widest = max(stdev(apart) for *_, apart in _splits(results))
    return (
        f"**`next` misses the share of new kinds, on average over random splits of {len(results)} test set"
        f"{'s' * (len(results) > 1)}:** among {said}. Single splits scatter by up to {widest:.3f}."
    )


def _splits(results: Results) -> Iterator[tuple[str, int, int, list[float], list[float], list[float]]]:
    """Iterate over subjects, inputs so far and to come: what was said, what was seen, and how far they are apart."""
    for subject, result in results.items():
        for first, found in result["splits"].items():
            for after in (key for key in found if key.isdigit()):
                apart = [said - seen for said, seen in zip(found["said"], found[after], strict=True)]
                yield subject, int(first), int(after), found["said"], found[after], apart


def forecast_section(results: Results) -> list[str]:
    """Say how far forecasts of more inputs were from what these showed."""
    rows = [
        [
            subject,
            name,
            f"{first:,}",
            f"{size:,}",
            *(f"{mean(own[figure]):.4f}" for figure in ("now", "said", "seen")),
            f"{mean(_misses(own)):+.1%}",
        ]
        for subject, first, size, name, own in _forecasts(results)
    ]
    header = ["subject", "criterion", "inputs so far", "inputs in all", "now", "said", "seen", "off by"]
    return [
        "## What a forecast of more inputs is worth",
        forecast_takeaway(results),
        "The test set in random order: `cov.forecast` of a first part beside what the criterion reads once so many "
        "inputs were observed; means over splits.",
        fold(f"By network, criterion and size ({len(rows)} rows)", markdown(header, rows)),
    ]


def forecast_takeaway(results: Results) -> str:
    """Say by how much forecasts miss, by criterion and by how many times as many inputs they are about."""
    misses: dict[str, dict[int, list[float]]] = {}
    for _, first, size, name, own in _forecasts(results):
        misses.setdefault(name, {}).setdefault(size // first, []).append(mean(_misses(own)))
    if not misses:
        return "**Nothing was forecast:** there are too few inputs."
    said = "; ".join(
        f"{name} {', '.join(f'×{times} {_range(found)}' for times, found in sorted(by_times.items()))}"
        for name, by_times in misses.items()
    )
    return f"**A forecast of so many times as many inputs is off, on average, by:** {said}."


def _range(misses: list[float]) -> str:
    low, high = (f"{value:+.0%}" for value in (min(misses), max(misses)))
    return low if low == high else f"{low} to {high}"


def _misses(own: Mapping[str, list[float]]) -> list[float]:
    """Return what was said too much, as shares of what was seen."""
    return [said / seen - 1 for said, seen in zip(own["said"], own["seen"], strict=True) if seen] or [0.0]


def _forecasts(results: Results) -> Iterator[tuple[str, int, int, str, Mapping[str, list[float]]]]:
    for subject, result in results.items():
        for first, by_size in result["parts"].items():
            for size, by_name in by_size.items():
                for name, own in by_name.items():
                    yield subject, int(first), int(size), name, own


def relative_section(results: Results) -> list[str]:
    """Show ``relative`` of fresh training inputs and of test sets by their number and that of training inputs."""
    every = [own for r in results.values() for own in r["calibrations"].values()]
    sizes = sorted({int(n) for own in every for suite in (FRESH, TEST) for n in own.get(suite, {})})
    rows = []
    for subject, result in results.items():
        for number, own in result["calibrations"].items():
            for suite in (FRESH, TEST):
                if suite in own:
                    means = {int(n): mean(found["relative"]) for n, found in own[suite].items()}
                    cells = [f"{means[size]:.2f}" if size in means else "–" for size in sizes]
                    rows.append([subject, f"{int(number):,}", suite, *cells])
    header = ["subject", "training inputs", "suite", *(f"{size:,}" for size in sizes)]
    return [
        "## `relative` of inputs like training data",
        relative_takeaway(results),
        "It should be 1.0 whatever the number of inputs and of training inputs, N, up to as many inputs as training "
        "inputs, and ten times as many below 5,000.",
        _spread_of_relative(results),
        "![relative by size](plots/lcc-relative.png)",
        "In two parts: known kinds and new decisions are expected apart, the latter as Chao1 does. That is no figure "
        "of the definition; its form was chosen, the better of two, on convnet-fashion-mnist, mlp-mnist and "
        "mlp-letter: only others test it. Whether a test set far above 1 tells of the network or of the figure, these "
        "tables do not say.",
        fold(f"By number of inputs and of training inputs ({len(rows)} rows)", markdown(header, rows)),
    ]


def relative_takeaway(results: Results) -> str:
    """Say how near 1 ``relative`` is where it should be."""
    within, beyond = _fresh(results, beyond=False), _fresh(results, beyond=True)
    if not within:
        return "No fresh training inputs were measured."
    said = (
        f"**`relative` is {min(within):.2f} to {max(within):.2f} for fresh training inputs, where it should be 1.0,** "
        "up to as many as it was calibrated with"
    )
    return said + (f"; for more it rises to {max(beyond):.2f}." if beyond else ".")


def _fresh(results: Results, *, beyond: bool) -> list[float]:
    return [
        mean(found["relative"])
        for result in results.values()
        for number, own in result["calibrations"].items()
        for size, found in own.get(FRESH, {}).items()
        if (int(size) > int(number)) == beyond
    ]


def _spread_of_relative(results: Results) -> str:
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


def errors_section(results: Results) -> list[str]:
    """Hold the errors that are stated against how far fresh draws differ."""
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
        errors_takeaway(results),
        "The delete-a-fold jackknife's error beside how far fresh draws differ. ±2 errors should cover the mean of all "
        "draws in 95 % of cases, and the difference of two draws be within two errors of it as often.",
        fold(
            f"By suite and size ({len(rows)} rows)",
            markdown([*header, "covers the mean", "covers another draw"], rows),
        ),
    ]


def errors_takeaway(results: Results) -> str:
    """Say how often two errors cover the mean of fresh draws, where 95 % would be right."""
    drawn = [own for result in results.values() for sizes in result["suites"].values() for own in sizes.values()]
    if not drawn:
        return "**Nothing was drawn:** there are too few inputs."
    covered, sizes = [], []
    for figure, name in (("value", "the value"), ("relative", "`relative`")):
        covers = [own[figure]["covers mean"] for own in drawn]
        covered.append(f"{mean(covers):.0%} of cases for {name} ({min(covers):.0%} to {max(covers):.0%})")
        ratios = [own[figure]["error"] / own[figure]["deviation"] for own in drawn if own[figure]["deviation"]]
        sizes.append(f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "no")
    return (
        f"**Two errors cover the mean of fresh draws in {' and in '.join(covered)},** where 95 % is meant. The errors "
        f"stated are {' and '.join(sizes)} times how far draws differ."
    )
