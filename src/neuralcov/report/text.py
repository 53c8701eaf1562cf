"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from neuralcov.results.results import Results

if TYPE_CHECKING:
    from rich.table import Table

_CRITERIA_SIDE_BY_SIDE = 3


def show_value(value: float | None) -> str:
    """Format a value with four figures; never a false 0 for something small, nor a false 1 for nearly all.

    >>> show_value(0.75), show_value(1234.5678), show_value(0.0000012345), show_value(0.0), show_value(None)
    ('0.7500', '1235', '1.234e-06', '0', '–')
    >>> show_value(0.999999), show_value(1.0)
    ('0.9999', '1.0000')
    """
    if value is None:
        return "–"
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


def value_table(result: Results) -> Table:
    """Return a table of criteria and their values, with the increase where the suite was added to another."""
    from rich.table import Table

    table = Table(title=f"{result.suite}: {result.inputs} inputs on {result.model}", title_justify="left")
    table.add_column("criterion", overflow="fold")
    table.add_column("value", justify="right")
    increase = result.increase
    if increase is not None:
        table.add_column("increase", justify="right")
    table.add_column("beside it")
    for name, value in result.values.items():
        figures = result.details.get(name, {})
        beside = ", ".join(f"{what} {show_value(number)}" for what, number in figures.items())
        row = [name, show_value(value)]
        if increase is not None:
            row.append(show_value(increase[name]))
        table.add_row(*row, beside)
    return table


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


def layer_table(result: Results) -> Table:
    """Return a table of layers and their values under each criterion that has one for them."""
    from rich.table import Table

    shown = [name for name in result.values if any(row.values.get(name) is not None for row in result.layers)]
    table = Table(title="by layer", title_justify="left")
    table.add_column("layer", overflow="fold")
    table.add_column("neurons", justify="right")
    for name in shown:
        table.add_column(name, justify="right")
    for row in result.layers:
        table.add_row(row.layer, str(row.neurons), *(show_value(row.values.get(name)) for name in shown))
    return table
