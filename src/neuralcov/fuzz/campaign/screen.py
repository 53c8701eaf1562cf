"""Show a live screen while a campaign runs, plain lines where there is no terminal, or nothing."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from neuralcov.core.counted import counted
from neuralcov.fuzz.campaign.result import Stats

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LINES_EVERY = 5.0


class ProgressView:
    """Show no progress. Base of the views that do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""

    def show(self, stats: Stats, *, last: bool = False) -> None:
        """Show how things stand."""


class LineView(ProgressView):
    """Show one plain line every few seconds."""

    def __init__(self, console: Console, every: float = _LINES_EVERY) -> None:
        self._console = console
        self._every = every
        self._shown: float | None = None

    @override
    def show(self, stats: Stats, *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and self._shown is not None and now - self._shown < self._every:
            return
        self._shown = now
        self._console.print(line_of(stats), soft_wrap=True, highlight=False, markup=False)


class LiveView(ProgressView):
    """Show a table that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._live = Live(console=console, refresh_per_second=4, transient=False)

    @override
    def __enter__(self) -> Self:
        self._live.start()
        return self

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    @override
    def show(self, stats: Stats, *, last: bool = False) -> None:
        self._live.update(table_of(stats), refresh=last)


def view_for(progress: bool | None) -> ProgressView:
    """Return a live view in a terminal; elsewhere lines if ``progress`` is true, else a view that shows nothing."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return ProgressView()
    from rich.console import Console

    console = Console(stderr=True)
    return LiveView(console) if sys.stderr.isatty() else LineView(console)


def line_of(stats: Stats) -> str:
    """Return everything in one line."""
    coverage = ", ".join(f"{name} {value:.6g} (+{stats.growth[name]:.4g})" for name, value in stats.values.items())
    return (
        f"{stats.seconds:.0f} s: {counted(stats.iterations, 'seed')}, {counted(stats.candidates, 'candidate')}, "
        f"{stats.per_second:,.0f} judged/s, {stats.kept:,} kept ({stats.admitted:.1%} of judged), "
        f"{counted(stats.distinct, 'different fault')} from {counted(stats.roots, 'seed')} in "
        f"{counted(stats.classes, 'class')}, last new one "
        f"{stats.since_fault:.0f} s ago"
        + (f"; {coverage}" if coverage else "")
        + (f"; {stats.still_new}" if stats.still_new else "")
        + (f"; {stats.still_faults}" if stats.still_faults else "")
    )


def table_of(stats: Stats) -> Table:
    """Return everything as a table."""
    from rich.table import Table

    table = Table(title=f"fuzzing for {_clock(stats.seconds)}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("candidates judged per second", f"{stats.per_second:,.0f}")
    table.add_row("seeds done, waves", f"{stats.iterations:,}, {stats.waves:,}")
    table.add_row("candidates, of them acceptable", f"{stats.candidates:,}, {_share(stats.valid, stats.candidates)}")
    table.add_row("kept, of those judged", f"{stats.kept:,}, {stats.admitted:.1%}")
    table.add_row("in the queue", f"{stats.queue:,}")
    table.add_row("[bold]different faults[/], seeds broken", f"[bold]{stats.distinct:,}[/], {stats.roots:,}")
    table.add_row("mutants misread, of them kept", f"{stats.faulty:,}, {stats.faulty_kept:,}")
    table.add_row("classes reached, entropy", f"{stats.classes}, {stats.entropy:.3f}")
    for name, value in stats.values.items():
        table.add_row(f"coverage {name}, grown by".replace("[", "\\["), f"{value:.6g}, {stats.growth[name]:.4g}")
    if stats.still_new:
        table.add_row("what is new", stats.still_new)
    if stats.still_faults:
        table.add_row("faults to come", stats.still_faults)
    table.add_row("last kept, last fault", f"{stats.since_kept:.0f} s, {stats.since_fault:.0f} s ago")
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
