"""Tables of a report as rows of cells: layers with their neurons, slices, a comparison, what was measured with what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralcov.core.findings import LayerRow
from neuralcov.report import svg
from neuralcov.report.text import as_ranges, show_share, show_value
from neuralcov.results.compare import ABOVE, BELOW, EQUAL, Comparison
from neuralcov.results.results import Results
from neuralcov.results.sections import LayerNeurons
from neuralcov.results.slices import SliceTable

# Criteria side by side; more do not fit a page.
_CRITERIA = 4
# From so many rows on a table has a filter, and shows the least covered first.
_MANY = 13
_MOST_ROWS = 250
_NAMED = 5
_RANGES = 12
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
    judged = any(row.dead_count is not None for row in result.neurons)
    layers = list(result.layers)
    first = next((name for name in shown if name in shares), None)
    if len(layers) >= _MANY and first is not None:
        layers.sort(key=lambda row: _known(row.values.get(first)))
        notes.append(f"The least covered by {first} come first.")
    if len(layers) > _MOST_ROWS:
        notes.append(f"{_MOST_ROWS} of {len(layers):,} layers are shown; the JSON form has them all.")
    rows = tuple(
        TableRow(row.layer, tuple(_layer_cells(row, shown, shares, neurons, judged)), _drill(row, result, neurons))
        for row in layers[:_MOST_ROWS]
    )
    heads = [("Layer", False), ("Neurons", True), *((name, True) for name in shown)]
    heads += [("Dead", True), ("Constant", True)] if judged else []
    return PageTable("t-layers", "Layers", tuple(heads), rows, tuple(notes))


def _layer_cells(
    row: LayerRow, shown: Sequence[str], shares: set[str], neurons: Mapping[str, LayerNeurons], judged: bool
) -> Iterator[Cell]:
    yield _number(row.neurons)
    for name in shown:
        yield _value(row.values.get(name), share=name in shares)
    if judged:
        found = neurons.get(row.layer)
        for count in (None, None) if found is None else (found.dead_count, found.constant_count):
            if count is None:
                yield Cell("–", "–")
            else:
                yield Cell(f"{count:,}", str(count), state="warn" if count else "")


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
    made = []
    for row in rows:
        cells = [_number(row.inputs)]
        for name in shown:
            cells += [_value(row.alone.get(name), share=name in shares), _value(row.lost.get(name))]
        made.append(TableRow(row.slice, tuple(cells)))
    heads = [(table.column, False), ("Inputs", True)]
    for name in shown:
        heads += [(f"{name} alone", True), ("only here", True)]
    return PageTable(f"t-slice-{number}", f"By {table.column}", tuple(heads), tuple(made), tuple(notes))


def comparison_page_table(comparison: Comparison) -> PageTable:
    """Return both sides of a comparison, figure by figure."""
    rows = []
    for row in comparison.rows:
        error = show_value(row.error) if row.error else "–"
        said = _VERDICTS.get(row.verdict, "not judged")
        why = f"{row.verdict} {said}" + (f": {row.why}" if row.why else "")
        state = "warn" if row.verdict == ABOVE else ""
        cells = (_value(row.first), _value(row.second), Cell(error, error), Cell(why, why, state=state, numeric=False))
        rows.append(TableRow(row.name, cells))
    heads = (("Figure", False), ("Baseline", True), ("This suite", True), ("±", True), ("Baseline is", False))
    return PageTable("t-comparison", "Comparison", heads, tuple(rows), comparison.notes)


def evidence_rows(result: Results) -> list[tuple[str, str]]:
    """Return what was measured with what, as names and values."""
    rows = [("model", result.model), ("weights", result.weights or ""), ("model SHA-256", result.model_id or "")]
    rows += [("suite", result.suite), ("inputs", f"{result.inputs:,}")]
    for name in result.values:
        definition = result.definitions.get(name)
        known = result.calibration.get(name)
        told = [f"definition {definition}"] if definition is not None else []
        told.append(f"calibration {known}" if known else "needs no calibration")
        rows.append((name, ", ".join(told)))
    rows += [(name, value) for name, value in _flat(_without(result.provenance)) if name != "model: id"]
    return [(name, value) for name, value in rows if value]


def procedure_rows(result: Results) -> list[tuple[str, str]]:
    """Return how the suite was measured, as far as that was noted."""
    noted = dict(result.provenance.get("procedure") or {})
    command = noted.pop("command", None)
    rows = [("command", " ".join(map(str, command)))] if command else []
    return rows + [(name, value) for name, value in _flat(noted) if value]


def _without(provenance: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in provenance.items() if name != "procedure"}


def _flat(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        name = f"{above}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            if len(value) > _RANGES:
                yield name, f"{len(value):,} entries"
            else:
                yield name, ", ".join(_words(item) for item in value)
        elif value is not None:
            yield name, _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_words(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _number(value: int) -> Cell:
    return Cell(f"{value:,}", str(value))


def _value(value: float | None, *, share: bool = False) -> Cell:
    if value is None or math.isnan(value):
        return Cell("–", "–")
    return Cell(show_value(value), f"{value:.6g}", svg.bar(value) if share else "")


def _are_shares(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(0 <= value <= 1 for value in known)


def _known(value: float | None) -> float:
    return math.inf if value is None or math.isnan(value) else value
