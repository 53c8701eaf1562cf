"""One suite on two networks, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from neuralcov.core.counted import counted
from neuralcov.report.text import show_share, show_value
from neuralcov.results.models import ModelChanges

if TYPE_CHECKING:
    from rich.table import Table


def change_lines(changes: ModelChanges) -> list[str]:
    """Say how many inputs are decided otherwise, and how far the groupings agree."""
    lines = [*changes.notes]
    if changes.decided:
        share = show_share(changes.otherwise / changes.decided)
        lines.append(f"{changes.otherwise:,} of {counted(changes.decided, 'input')} ({share}) are decided otherwise")
    answers = changes.answers
    if answers is not None:
        first, second = (show_value(share) for share in answers.accuracy)
        sign = ("<" if answers.accuracy[0] < answers.accuracy[1] else ">") if answers.differ else "="
        lines.append(
            f"right answers: {first} {sign} {second} (± {show_value(answers.error)}, input by input): "
            f"{answers.first_only:,} became wrong, {answers.second_only:,} became right"
        )
    for found in changes.groupings:
        lines.append(
            f"{found.column}: {counted(found.groups[0], 'kind')} against {found.groups[1]:,} of "
            f"{counted(found.inputs, 'input')}, "
            f"agreement {found.agreement:.3f}; {counted(found.changed, 'input')} with other companions "
            f"(pairs together on both "
            f"{found.pairs[0]:,}, on the first only {found.pairs[1]:,}, on the second only {found.pairs[2]:,})"
        )
    return lines


def change_tables(changes: ModelChanges, most: int = 10) -> Iterator[Table]:
    """Yield a table of inputs that are decided otherwise, and for each grouping one of those that moved most.

    Args:
        changes: what to show.
        most: rows of a table.
    """
    from rich.table import Table

    if changes.decisions:
        table = Table(title=_title("decided otherwise", most, changes.otherwise))
        table.title_justify = "left"
        table.add_column("input", overflow="fold")
        for name in ("label", "first", "second"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in changes.decisions[:most]:
            cells = (one.id, one.label, one.first, one.second)
            table.add_row(*("–" if cell is None else str(cell) for cell in cells))
        yield table
    for found in changes.groupings:
        if not found.moved:
            continue
        table = Table(title=_title(f"other companions by {found.column}", most, found.changed))
        table.title_justify = "left"
        table.add_column("input", overflow="fold")
        for name in ("first", "second", "both"):
            table.add_column(name, justify="right", no_wrap=True)
        for moved in found.moved[:most]:
            table.add_row(str(moved.id), f"{moved.first:,}", f"{moved.second:,}", f"{moved.common:,}")
        yield table


def _title(what: str, most: int, there: int) -> str:
    return what if there <= most else f"{what}, {most:,} of {there:,}"
