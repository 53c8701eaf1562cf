"""``neuralcov compare --models``: one suite on two networks."""

from __future__ import annotations

from pathlib import PurePath

from rich.text import Text

from neuralcov.cli.console import note, output
from neuralcov.core.files import name_of, write_json
from neuralcov.coverage.coverage import Coverage
from neuralcov.report.models import change_lines, change_tables
from neuralcov.report.text import comparison_table
from neuralcov.results.compare import Comparison
from neuralcov.results.models import ModelChanges, compare_tables
from neuralcov.results.table_file import read_table


def same_suite(first: Coverage, second: Coverage) -> bool:
    """Return whether two coverages are known to have observed the same inputs."""
    return first.inputs == second.inputs and first.has_runs_of(second) and second.has_runs_of(first)


def show_models(found: Comparison, tables: tuple[str, str] | None, json: str | None, *, same: bool) -> None:
    """Show relative figures of one suite on two networks, and which inputs they treat otherwise.

    Args:
        found: the figures.
        tables: of the inputs, as ``measure --per-input`` wrote them for both.
        json: where to write the result.
        same: whether the inputs are known to be the same.
    """
    changes: ModelChanges | None = None
    if tables is not None:
        names = tuple(PurePath(name_of(path)).name for path in tables)
        changes = compare_tables(read_table(tables[0]), read_table(tables[1]), (names[0], names[1]))
    if json is not None:
        write_json(json, {**found.to_json(), "changes": None if changes is None else changes.to_json()})
    console = output()
    if not same:
        note("these are not known to be the same inputs: other bytes (is the preprocessing the same?), or no keys kept")
    for sentence in found.notes:
        console.print(Text(sentence, "bold red" if "ALARM" in sentence else "bold"), highlight=False)
    console.print(comparison_table(found))
    if changes is None:
        note("which inputs change is told by their tables: measure both with --per-input, and give --inputs A B")
        return
    for line in change_lines(changes):
        console.print(Text(line), highlight=False)
    for table in change_tables(changes):
        console.print(table)
