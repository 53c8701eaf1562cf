"""What the commands write to: results to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from neuralcov.cli import streams
from neuralcov.core.errors import CoverageWarning

if TYPE_CHECKING:
    from neuralcov.results import Results


def output() -> Console:
    """Return the console for results. Tables keep their width when nobody's terminal limits it."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    # Names of files and layers may hold square brackets or colons, which are no markup.
    return Console(width=width, markup=False, emoji=False)


def print_result(result: Results, *, by_layer: bool = False, findings: bool = False) -> None:
    """Print what was measured.

    Args:
        result: what was measured.
        by_layer: whether to show every layer.
        findings: whether to show findings as notes, where they were not told as warnings.
    """
    # Help and versions are shown without what reports are made with.
    from neuralcov.report import layer_tables, missing_table, sanity_lines, slice_tables, value_table

    for sentence in (*result.notes, *(result.findings if findings else ())):
        note(sentence)
    console = output()
    if result.sanity is not None:
        for line in sanity_lines(result.sanity):
            console.print(Text(line, "bold red" if line.startswith("ALARM") else ""), highlight=False)
    console.print(value_table(result))
    for sentence in dict.fromkeys(sentence for sliced in result.slices for sentence in sliced.notes):
        note(sentence)
    for table in slice_tables(result):
        console.print(table)
    if by_layer:
        for table in layer_tables(result):
            console.print(table)
    if result.missing:
        console.print(missing_table(result))


def complain(sentence: str) -> None:
    """Print one sentence to standard error."""
    _say(Text("neuralcov:", "bold red"), sentence)


def note(sentence: str) -> None:
    """Print something to bear in mind to standard error."""
    if not streams.is_quiet():
        _say(Text("note:", "yellow"), sentence)


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show findings as notes, and other warnings as Python does."""
    if issubclass(category, CoverageWarning):
        note(str(message))
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *where[:2]))


def _say(who: Text, sentence: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(who, " ", sentence))
