"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from neuralcov.core.counted import counted
from neuralcov.core.layout import Layout
from neuralcov.results.compare import Comparison
from neuralcov.results.gate import Check, Verdict
from neuralcov.results.references import against_reference
from neuralcov.results.results import Results
from neuralcov.results.sanity import Sanity
from neuralcov.results.scale import show_scale
from neuralcov.results.sections import Reference

if TYPE_CHECKING:
    from rich.table import Table

_CRITERIA_SIDE_BY_SIDE = 3
_CRITERIA_BY_LAYER = 4
_WIDEST_VALUE = 9
_LONGEST_NAME = 30
# Of the value itself.
_ERRORS = ("error", "standard error")
_SHARES = {
    "off_map": "{} off the map",
    "new_decisions": "{} of its kinds new decisions",
    "next": "{} chance that the next input shows a new kind",
}


def show_value(value: float | None) -> str:
    """Format a value with four figures; never a false 0 for something small, nor a false 1 for nearly all.

    >>> show_value(0.75), show_value(1234.5678), show_value(0.0000012345), show_value(0.0), show_value(None)
    ('0.7500', '1235', '1.234e-06', '0', '–')
    >>> show_value(0.999999), show_value(1.0)
    ('0.9999', '1.0000')
    """
    if value is None or math.isnan(value):
        return "–"
    if isinstance(value, int):
        return str(value)
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3:
        return f"{value:.4g}"
    decimals = 4 if size < 10 else 3 if size < 100 else 2 if size < 1000 else 0
    if value == int(value) and size >= 2:
        return f"{int(value)}"
    text = f"{value:.{decimals}f}"
    return "0.9999" if text == "1.0000" and value < 1 else text


def show_share(share: float) -> str:
    """Format a share in per cent; never a false 0 or 100.

    >>> show_share(0.0), show_share(0.0004), show_share(0.0031), show_share(0.97), show_share(0.9999), show_share(1.0)
    ('0 %', '<0.1 %', '0.3 %', '97 %', '>99.9 %', '100 %')
    """
    per_cent = 100 * share
    if share in (0, 1):
        return f"{per_cent:.0f} %"
    if per_cent < 0.1:
        return "<0.1 %"
    if per_cent > 99.9:
        return ">99.9 %"
    return f"{per_cent:.1f} %" if per_cent < 9.95 or per_cent > 99 else f"{per_cent:.0f} %"


def figures_in_words(figures: Mapping[str, float]) -> str:
    """Say what stands beside a value; figures that nothing is known of appear under their names.

    >>> figures_in_words({"relative": 0.97, "relative_error": 0.04, "off_map": 0.003, "off_map_expected": 0.003})
    '0.97 (± 0.04) × as varied as training data, 0.3 % off the map (0.3 % expected)'
    """
    rest = dict(figures)
    said = []
    for name in (*_ERRORS, "off_map_worst", "off_map_worst_expected"):
        rest.pop(name, None)
    if "relative" in rest:
        error = f" (± {rest.pop('relative_error'):.2f})" if "relative_error" in rest else ""
        said.append(f"{rest.pop('relative'):.2f}{error} × as varied as training data")
    for name, words in _SHARES.items():
        if name in rest:
            expected = rest.pop(f"{name}_expected", None)
            known = "" if expected is None else f" ({show_share(expected)} expected)"
            said.append(words.format(show_share(rest.pop(name))) + known)
    if "to_come" in rest:
        error = f" (± {rest.pop('to_come_error'):.0f})" if "to_come_error" in rest else ""
        said.append(f"at least {rest.pop('to_come'):.0f}{error} kinds to come")
    said += [f"{name} {show_value(number)}" for name, number in rest.items()]
    return ", ".join(said)


def value_with_error(value: float, figures: Mapping[str, float]) -> str:
    """Format a value with its standard error, if the figures beside it have one.

    >>> value_with_error(0.559, {"error": 0.0253}), value_with_error(12.0, {})
    ('0.5590 ± 0.0253', '12')
    """
    error = next((figures[name] for name in _ERRORS if name in figures), None)
    return show_value(value) if error is None else f"{show_value(value)} ± {show_value(error)}"


def sanity_lines(sanity: Sanity) -> list[str]:
    """Say whether a measurement is sane, a line for each figure that is known and for each alarm."""
    few = " (few: all figures scatter widely)" if sanity.few else ""
    lines = [f"inputs            {sanity.inputs:,}{few}"]
    if sanity.accuracy is not None:
        of = "" if sanity.judged == sanity.inputs else f" of {sanity.judged:,} with labels"
        known = sanity.accuracy_in_training
        beside = "" if known is None else f" (training data {show_share(known)})"
        lines.append(f"right answers     {show_share(sanity.accuracy)}{of}{beside}")
    if sanity.classes is not None:
        known = sanity.classes_in_training
        seen = f"{sanity.classes:,}" if known is None else f"{known - len(sanity.never_seen):,} of {known:,}"
        never = f", never seen: {as_ranges(sanity.never_seen, 8)}" if sanity.never_seen else ""
        lines.append(f"classes           {seen}{' by decision' if sanity.by == 'decision' else ''}{never}")
    if sanity.unlike is not None:
        known = sanity.unlike_expected
        beside = "" if known is None else f" ({show_share(known)} expected)"
        lines.append(f"unlike training   {show_share(sanity.unlike)}{beside}")
    if scale := show_scale(sanity.mean, sanity.deviation):
        usual = show_scale(sanity.mean_in_training, sanity.deviation_in_training)
        lines.append(f"scale             {scale}" + (f" (training data {usual})" if usual else ""))
    if sanity.duplicates is not None:
        near = "" if sanity.near_duplicates is None else f", near duplicates {sanity.near_duplicates:,}"
        lines.append(f"duplicates        {sanity.duplicates:,}{near}")
    return lines + [f"ALARM {alarm.name}: {alarm.sentence}" for alarm in sanity.alarms]


def summary(
    title: str,
    values: Mapping[str, float],
    details: Mapping[str, Mapping[str, float]],
    references: Mapping[str, str] | None = None,
) -> str:
    """Return values as lines of text, each with its name and what stands beside it; ``references`` are in words.

    >>> print(summary("5 inputs", {"NC(0.75)": 0.5, "LCC": 0.25}, {"LCC": {"relative": 1.0}}))
    5 inputs
      NC(0.75)  0.5000
      LCC       0.2500  1.00 × as varied as training data
    """
    shown = {name: value_with_error(value, details.get(name, {})) for name, value in values.items()}
    width, longest = (max(map(len, texts), default=0) for texts in (shown, shown.values()))
    lines = [title]
    for name, value in shown.items():
        head = f"  {name:<{width}}  {value:>{longest}}"
        told = figures_in_words(details.get(name, {})).split(", ")
        beside = [*(part for part in told if part), *([references[name]] if references and name in references else [])]
        beside = beside or [""]
        lines.append(f"{head}  {beside[0]}".rstrip())
        lines += [f"{'':{len(head)}}  {more}" for more in beside[1:]]
    return "\n".join(lines)


def value_table(result: Results) -> Table:
    """Return a table of criteria and their values, with the increase where the suite was added to another."""
    from rich.table import Table

    on = f" on {result.model}" if result.model else ""
    name = f"{result.suite}: " if result.suite else ""
    table = Table(title=f"{name}{counted(result.inputs, 'input')}{on}", title_justify="left")
    table.add_column("criterion", overflow="fold", min_width=_shortest(result.values), max_width=_LONGEST_NAME)
    table.add_column("value", justify="right", no_wrap=True)
    increase = result.increase
    if increase is not None:
        table.add_column("increase", justify="right", no_wrap=True)
    table.add_column("beside it")
    for name, value in result.values.items():
        figures = result.details.get(name, {})
        row = [name, value_with_error(value, figures)]
        if increase is not None:
            row.append(show_value(increase[name]))
        reference = result.references.get(name)
        against = "" if reference is None else reference_in_words(value, figures, result.inputs, reference)
        table.add_row(*row, ", ".join(filter(None, (figures_in_words(figures), against))))
    return table


def layout_in_words(layout: Layout) -> str:
    """Return how many layers and neurons there are, as ``2 layers, 7 neurons``."""
    return f"{counted(len(layout), 'layer')}, {counted(layout.neurons, 'neuron')}"


def reference_in_words(value: float, figures: Mapping[str, float], inputs: int, reference: Reference) -> str:
    """Say what a value is beside that of as many held-out training inputs.

    >>> reference_in_words(0.56, {"error": 0.02}, 500, Reference(0.58, 500, (500,), (0.58,)))
    'as varied as training data (0.5800 for 500 held-out training inputs, ± 0.0566)'
    """
    error = next((figures[name] for name in _ERRORS if name in figures), None)
    found = against_reference(value, error, inputs, reference, show_value)
    return found.told if found.verdict is None else f"{found.verdict} ({found.told})"


def comparison_table(comparison: Comparison) -> Table:
    """Return a table of two measurements: ``>`` and ``<`` where they differ, ``=`` within two standard errors."""
    from rich.table import Table

    table = Table(title=f"{comparison.first} against {comparison.second}", title_justify="left")
    table.add_column("figure", overflow="fold", min_width=14, max_width=_LONGEST_NAME)
    table.add_column("first", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("second", justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    table.add_column("")
    for row in comparison.rows:
        error = "" if not row.error else show_value(row.error)
        table.add_row(row.name, show_value(row.first), row.verdict, show_value(row.second), error, row.why)
    return table


def gate_lines(verdict: Verdict) -> list[str]:
    """Say of every check whether it is met, and then of the gate."""
    lines = list(verdict.notes)
    for check in verdict.checks:
        state = "met" if check.met else "WAIVED" if check.fine else "NOT MET"
        why = f" ({check.waived})" if check.waived is not None and not check.met else ""
        asked_by = "" if check.requirement is None else f" [{check.requirement}]"
        lines.append(f"{state}: {_labelled(check)}{asked_by}{why}")
    failed = sum(not check.fine for check in verdict.checks)
    end = "gate met" if verdict.met else f"gate NOT met: {failed} of {counted(len(verdict.checks), 'check')} failed"
    return [*lines, end]


def _labelled(check: Check) -> str:
    return f"{check.name}: {check.sentence}" if check.name.startswith("alarm:") else check.sentence


def missing_table(result: Results, most: int = 12) -> Table:
    """Return a table of the neurons of which a criterion has covered nothing, as ranges of their numbers.

    Args:
        result: what was measured.
        most: ranges to name in a row.
    """
    from rich.table import Table

    table = Table(title="neurons of which nothing is covered", title_justify="left")
    table.add_column("layer", overflow="fold")
    table.add_column("criterion", overflow="fold", min_width=_shortest(result.missing))
    table.add_column("neurons", justify="right", no_wrap=True)
    table.add_column("their numbers")
    widths = {row.layer: row.neurons for row in result.layers}
    for name, layers in result.missing.items():
        for layer, numbers in layers.items():
            table.add_row(layer, name, f"{len(numbers)} of {widths[layer]}", as_ranges(numbers, most))
    return table


def as_ranges(numbers: Sequence[int], most: int | None = None) -> str:
    """Join rising numbers to ranges, at most so many of them.

    >>> as_ranges([0, 1, 2, 5, 7, 8]), as_ranges([0, 2, 4], most=2), as_ranges([])
    ('0-2, 5, 7-8', '0, 2, …', '')
    """
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    shown = ["-".join(map(str, part)) for part in ranges[:most]]
    return ", ".join([*shown, "…"] if len(shown) < len(ranges) else shown)


def _shortest(names: Iterable[str]) -> int:
    """Return the width that a column of criteria keeps in a narrow terminal."""
    return min(14, max((len(name) for name in names), default=0))


def slice_tables(result: Results, most: int = 40) -> Iterator[Table]:
    """Yield tables of slices: what each covers alone, and what all inputs would lose without it.

    A table has three criteria at most, so that its numbers fit a terminal.

    Args:
        result: what was measured.
        most: rows of one table, the largest slices first where there are more.
    """
    from rich.table import Table

    for sliced in result.slices:
        names = [name for name in result.values if any(row.alone.get(name) is not None for row in sliced.rows)]
        rows = sliced.rows
        if len(rows) > most:
            rows = tuple(sorted(rows, key=lambda row: -row.inputs)[:most])
        for start in range(0, len(names), _CRITERIA_SIDE_BY_SIDE):
            shown = names[start : start + _CRITERIA_SIDE_BY_SIDE]
            more = f", the largest {most} of {len(sliced.rows)}" if rows is not sliced.rows else ""
            table = Table(title=f"by {sliced.column}{more}: alone, and lost without it", title_justify="left")
            table.add_column(sliced.column, overflow="fold")
            table.add_column("inputs", justify="right")
            for name in shown:
                table.add_column(name, justify="right", overflow="fold")
                table.add_column("lost", justify="right")
            show = {name: _formatter([row.alone.get(name) for row in sliced.rows]) for name in shown}
            for row in rows:
                figures = (show[name](column.get(name)) for name in shown for column in (row.alone, row.lost))
                table.add_row(row.slice, str(row.inputs), *figures)
            yield table


def _formatter(values: Sequence[float | None]) -> Callable[[float | None], str]:
    """Return what formats a column of values: numbers of kinds, the whole of which is above 1, have no decimals."""
    known = [value for value in values if value is not None]
    counts = all(value == int(value) for value in known) and any(value > 1 for value in known)
    return (lambda value: "–" if value is None else f"{value:.0f}") if counts else show_value


def layer_tables(result: Results) -> Iterator[Table]:
    """Yield tables of layers and their values under each criterion that has one for them, a few criteria in each."""
    from rich.table import Table

    # Of the figures beside values, those that say how to read them.
    names = [*result.values, *(f"{name}.relative" for name in result.values)]
    found = {row.layer: {**row.values, **row.figures} for row in result.layers}
    shown = [name for name in names if any(values.get(name) is not None for values in found.values())]
    for start in range(0, max(1, len(shown)), _CRITERIA_BY_LAYER):
        some = shown[start : start + _CRITERIA_BY_LAYER]
        table = Table(title="by layer", title_justify="left")
        table.add_column("layer", overflow="fold")
        table.add_column("neurons", justify="right", no_wrap=True)
        for name in some:
            table.add_column(name, justify="right", overflow="fold", min_width=_WIDEST_VALUE)
        for row in result.layers:
            table.add_row(row.layer, str(row.neurons), *(show_value(found[row.layer].get(name)) for name in some))
        yield table
