"""Tables of a report as rows of cells: layers with their neurons, slices, a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from neuralcov.core.counted import counted
from neuralcov.core.findings import LayerRow
from neuralcov.core.input_names import CLASS
from neuralcov.report import svg
from neuralcov.report.text import as_ranges, show_share, show_value
from neuralcov.results.compare import ABOVE, BELOW, EQUAL, ERRORS_APART, Comparison
from neuralcov.results.results import Results
from neuralcov.results.sections import LayerNeurons
from neuralcov.results.slices import SliceRow, SliceTable

# Criteria side by side; more do not fit a page.
_CRITERIA = 4
# From so many rows on a table has a filter, and shows the least covered first.
_MANY = 13
_MOST_ROWS = 250
_NAMED = 5
_LONG_NAME = 12
_RANGES = 12
_OFF_MAP = ".off_map"
# What layers have beside values, and counts of neurons: how their columns are called.
_FIGURES = {"relative": "× training", "off_map": "Off the map"}
_COUNTS: dict[str, Callable[[LayerNeurons], int | None]] = {
    "Dead": lambda row: row.dead_count,
    "Constant": lambda row: row.constant_count,
}
_VERDICTS = {ABOVE: "above", BELOW: "below", EQUAL: "no difference"}


@dataclass(frozen=True)
class Cell:
    """Hold one cell: what it shows, what it sorts by, and a bar where it is a share."""

    text: str
    sort: str = ""
    bar: str = ""
    state: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class TableRow:
    """Hold one row: its head, its cells, and what unfolds below it: pairs of a chart and a sentence."""

    head: str
    cells: tuple[Cell, ...]
    more: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PageTable:
    """Hold a table: its caption, the heads of its columns with whether they hold numbers, its rows and notes."""

    id: str
    caption: str
    heads: tuple[tuple[str, bool], ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def filtered(self) -> bool:
        """Whether there are so many rows that one looks for a name."""
        return len(self.rows) >= _MANY

    @property
    def folded(self) -> bool:
        """Whether some row has more to show."""
        return any(row.more for row in self.rows)


def layer_table(result: Results) -> PageTable | None:
    """Return the table of layers; with many of them the least covered come first."""
    if not result.layers:
        return None
    names = [name for name in result.values if any(row.values.get(name) is not None for row in result.layers)]
    shown, notes = names[:_CRITERIA], []
    if len(names) > len(shown):
        notes.append(f"Not shown by layer: {', '.join(names[_CRITERIA:])}; the JSON form has them.")
    shares = {name for name in shown if _are_shares([row.values.get(name) for row in result.layers])}
    neurons = {row.layer: row for row in result.neurons}
    beside = _beside(result)
    layers, order = _worst_first(result, next((name for name in shown if name in shares), None), beside)
    notes += [order] if order else []
    if len(layers) > _MOST_ROWS:
        notes.append(f"{_MOST_ROWS} of {counted(len(layers), 'layer')} are shown; the JSON form has them all.")
    columns = [name for name, count in _COUNTS.items() if any(count(row) is not None for row in result.neurons)]
    if "Constant" in columns and not any(row.constant_count for row in result.neurons):
        columns.remove("Constant")
        notes.append("No neuron gave one value for all inputs.")
    rows = []
    for row in layers[:_MOST_ROWS]:
        cells = [_number(row.neurons), *(_figure(row, name) for name in beside)]
        cells += [_value(row.values.get(name), share=name in shares) for name in shown]
        found = neurons.get(row.layer)
        cells += [_count(None if found is None else _COUNTS[name](found)) for name in columns]
        rows.append(TableRow(row.layer, tuple(cells), _drill(row, result, neurons)))
    heads = [("Layer", False), ("Neurons", True), *((words, True) for words in beside.values())]
    heads += [*((name, True) for name in shown), *((name, True) for name in columns)]
    return PageTable("t-layers", "Layers", tuple(heads), tuple(rows), tuple(notes))


def _beside(result: Results) -> dict[str, str]:
    """Return figures beside values that layers have, with what they are called: those of the first criterion alone."""
    found: dict[str, str] = {}
    for name in result.values:
        for figure, words in _FIGURES.items():
            if any(row.figures.get(f"{name}.{figure}") is not None for row in result.layers):
                found[f"{name}.{figure}"] = words
        if found:
            break
    return found


def _worst_first(result: Results, name: str | None, beside: Mapping[str, str]) -> tuple[list[LayerRow], str]:
    """Return the layers, with many of them the worst first, and a sentence that says so."""
    layers = list(result.layers)
    if len(layers) < _MANY:
        return layers, ""
    off_map = next((figure for figure in beside if figure.endswith(_OFF_MAP)), None)
    if off_map is not None:
        layers.sort(key=lambda row: -_known(row.figures.get(off_map), -math.inf))
        return layers, "Layers where most inputs are off the map come first."
    if name is not None:
        layers.sort(key=lambda row: _known(row.values.get(name)))
        return layers, f"The least covered by {name} come first."
    return layers, ""


def _figure(row: LayerRow, name: str) -> Cell:
    number = row.figures.get(name)
    if number is None or math.isnan(number):
        return Cell("–", "–")
    return Cell(show_share(number) if name.endswith(_OFF_MAP) else f"{number:.2f}", f"{number:.6g}")


def _count(count: int | None) -> Cell:
    return Cell("–", "–") if count is None else Cell(f"{count:,}", str(count), state="warn" if count else "")


def _drill(row: LayerRow, result: Results, neurons: Mapping[str, LayerNeurons]) -> tuple[tuple[str, str], ...]:
    """Return what unfolds below a layer: how its neurons are visited, directions, and which neurons by number."""
    found, parts = neurons.get(row.layer), []
    for name, shares in () if found is None else found.visited.items():
        if not shares:
            continue
        assert found is not None
        least = sorted(zip(shares, found.numbers.get(name, ()), strict=False))[:_NAMED]
        named = ", ".join(f"{number} ({show_share(share)})" for share, number in least)
        few = (
            "" if len(shares) == found.neurons else f" The {len(shares)} least visited of {found.neurons:,} are drawn."
        )
        living = found.living.get(name)
        if living is not None and found.dead_count:
            few += f" On average {show_share(living)} for those that are not dead."
        label = f"{name}: visited share of neurons of {row.layer}, from {show_share(min(shares))}"
        parts.append((svg.strip(shares, label), f"{name}, a column a neuron, least visited first: {named}.{few}"))
    if found is not None and found.eigenvalues:
        label = f"largest eigenvalues of {row.layer}: the first has {show_share(found.eigenvalues[0])} of the variance"
        told = f"The {len(found.eigenvalues)} largest eigenvalues, as shares of the variance; the first has "
        parts.append((svg.eigenvalue_bars(found.eigenvalues, label), f"{told}{show_share(found.eigenvalues[0])}."))
    for words, numbers in () if found is None else (("Dead", found.dead), ("Constant", found.constant)):
        if numbers:
            parts.append(("", f"{words}, by number: {as_ranges(sorted(numbers), _RANGES)}."))
    for name, layers in result.missing.items():
        if layers.get(row.layer):
            parts.append(("", f"Nothing covered by {name}: {as_ranges(layers[row.layer], _RANGES)}."))
    return tuple(parts)


def slice_page_tables(result: Results) -> list[PageTable]:
    """Return a table for each column by which the suite was sliced."""
    return [_slices(result, table, number) for number, table in enumerate(result.slices)]


def _slices(result: Results, table: SliceTable, number: int) -> PageTable:
    names = [name for name in result.values if any(row.alone.get(name) is not None for row in table.rows)]
    shown, notes = names[:_CRITERIA], list(table.notes)
    if len(names) > len(shown):
        notes.append(f"Not shown by {table.column}: {', '.join(names[_CRITERIA:])}; the JSON form has them.")
    rows = list(table.rows)
    if len(rows) > _MOST_ROWS:
        rows = sorted(rows, key=lambda row: -row.inputs)[:_MOST_ROWS]
        notes.append(f"The largest {_MOST_ROWS} of {len(table.rows):,} are shown.")
    shares = {name for name in shown if _are_shares([row.alone.get(name) for row in table.rows])}
    answered, mistaken = any(row.judged for row in rows), any(row.mistaken for row in rows)
    counts = {name: _are_counts([row.alone.get(name) for row in table.rows]) for name in shown}
    made = []
    for row in rows:
        cells = [_number(row.inputs)]
        cells += [_right(row, result)] if answered else []
        cells += [Cell(_mistakes(row), numeric=False)] if mistaken else []
        for name in shown:
            cells.append(_value(row.alone.get(name), share=name in shares, count=counts[name]))
            cells.append(_value(row.lost.get(name), count=counts[name]))
        made.append(TableRow(row.slice, tuple(cells)))
    heads = [(table.column.capitalize() if table.column == CLASS else table.column, False), ("Inputs", True)]
    heads += [("Right", True)] if answered else []
    heads += [("Mistaken for", False)] if mistaken else []
    for name in shown:
        heads += [(f"{_short(name, names)} alone", True), ("Only here", True)]
    return PageTable(f"t-slice-{number}", f"By {table.column}", tuple(heads), tuple(made), tuple(notes))


def _right(row: SliceRow, result: Results) -> Cell:
    """Return the share of right answers, marked where it is below that of all inputs by more than chance explains."""
    share = row.accuracy
    if share is None:
        return Cell("–", "–")
    whole = None if result.sanity is None else result.sanity.accuracy
    low = whole is not None and share < whole - ERRORS_APART * math.sqrt(whole * (1 - whole) / row.judged)
    return Cell(show_share(share), f"{share:.6g}", state="warn" if low else "")


def _mistakes(row: SliceRow) -> str:
    said = [f"{name} ×{times}" if times > 1 else name for name, times in row.mistaken.items()]
    return ", ".join(said) or "–"


def comparison_page_table(comparison: Comparison) -> PageTable:
    """Return both sides of a comparison, figure by figure."""
    rows = []
    for row in comparison.rows:
        error = show_value(row.error) if row.error else "–"
        said = _VERDICTS.get(row.verdict, "not judged")
        why = f"{row.verdict} {said}" + (f": {row.why}" if row.why else "")
        state = "warn" if row.verdict == ABOVE else ""
        # The suite is to the right where it is above the baseline.
        away = row.difference / row.error if row.error else None
        drawn = "" if away is None else svg.apart(away, f"{away:+.1f} standard errors")
        cells = (
            _value(row.first),
            _value(row.second),
            Cell(error, error),
            Cell("" if drawn else "–", "", drawn, numeric=False),
            Cell(why, why, state=state, numeric=False),
        )
        rows.append(TableRow(row.name, cells))
    heads = (
        ("Figure", False),
        ("Baseline", True),
        ("This suite", True),
        ("±", True),
        ("Errors apart, band ±2", False),
        ("Baseline is", False),
    )
    return PageTable("t-comparison", "Comparison", heads, tuple(rows), comparison.notes)


def _number(value: int) -> Cell:
    return Cell(f"{value:,}", str(value))


def _value(value: float | None, *, share: bool = False, count: bool = False) -> Cell:
    if value is None or math.isnan(value):
        return Cell("–", "–")
    return Cell(f"{value:,.0f}" if count else show_value(value), f"{value:.6g}", svg.bar(value) if share else "")


def _are_shares(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(0 <= value <= 1 for value in known)


def _short(name: str, names: Sequence[str]) -> str:
    """Return a name without its settings where it is long and no other begins as it does."""
    head = name.partition("(")[0]
    alone = sum(other.partition("(")[0] == head for other in names) == 1
    return head if alone and len(name) > _LONG_NAME else name


def _are_counts(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return any(value > 1 for value in known) and all(value == int(value) for value in known)


def _known(value: float | None, otherwise: float = math.inf) -> float:
    return otherwise if value is None or math.isnan(value) else value
