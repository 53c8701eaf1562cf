"""What a suite lacks, as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuralcov.report.text import show_share
from neuralcov.results.lacking import Lacking

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST_NAME = 30


def lacking_table(lacking: Lacking) -> Table:
    """Return a table of the kinds that the field shows and the suite lacks, layer by layer."""
    from rich.table import Table

    table = Table(title=f"kinds that {lacking.field} shows and {lacking.suite} lacks", title_justify="left")
    table.add_column("criterion", overflow="fold", max_width=_LONGEST_NAME)
    table.add_column("layer", overflow="fold")
    for name in ("kinds", "inputs", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("most frequent")
    for row in lacking.rows:
        largest = ", ".join(f"{count}×" for count in row.largest)
        table.add_row(row.criterion, row.layer, f"{row.kinds:,}", f"{row.inputs:,}", show_share(row.share), largest)
    return table


def collect_table(lacking: Lacking, most: int = 12) -> Table:
    """Return a table of the kinds of the last layer that a suite lacks, with inputs of the field that show them.

    Args:
        lacking: what is lacking.
        most: kinds to show.
    """
    from rich.table import Table

    more = f", {most} of {len(lacking.collect):,}" if len(lacking.collect) > most else ""
    title = f"to collect: kinds of the last layer, and inputs of {lacking.field} that show them{more}"
    table = Table(title=title, title_justify="left")
    table.add_column("criterion", overflow="fold", max_width=_LONGEST_NAME)
    table.add_column("inputs", justify="right", no_wrap=True)
    table.add_column("the model says", overflow="fold")
    table.add_column("such as", overflow="fold")
    for kind in lacking.collect[:most]:
        said = "–" if kind.prediction is None else str(kind.prediction)
        rest = ", …" if kind.inputs > len(kind.ids) else ""
        table.add_row(kind.criterion, f"{kind.inputs:,}", said, ", ".join(map(str, kind.ids)) + rest)
    return table
