"""The commands; ``neuralcov.cli.exits`` says how they end."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Annotated

import typer

from neuralcov import __version__
from neuralcov.cli.combine import combine
from neuralcov.cli.console import output, show_warning
from neuralcov.cli.demo import demo
from neuralcov.cli.doctor import doctor
from neuralcov.cli.exits import end
from neuralcov.cli.fuzz import fuzz
from neuralcov.cli.gate import compare, gate
from neuralcov.cli.layers import layers
from neuralcov.cli.measure import measure
from neuralcov.cli.ranking import minimise, rank, select
from neuralcov.cli.report import report
from neuralcov.cli.selftest import selftest
from neuralcov.cli.show import show
from neuralcov.cli.streams import end_on_terminate, prepare_streams
from neuralcov.cli.verify import verify

app = typer.Typer(
    name="neuralcov",
    help="Test coverage for neural networks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output().print(f"neuralcov {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Test coverage for neural networks."""


COMMANDS = (
    demo,
    layers,
    measure,
    show,
    report,
    compare,
    gate,
    verify,
    combine,
    rank,
    select,
    minimise,
    selftest,
    doctor,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(fuzz, name="fuzz")
for entry in entry_points(group="neuralcov.commands"):
    # Commands of other packages, such as neuralcov-lab's data, train and reproduce.
    found = entry.load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=entry.name)
    else:
        app.command(entry.name)(found)


def main() -> None:
    """Run a command; every error ends in one sentence and an exit code that tells whose it was."""
    prepare_streams()
    warnings.showwarning = show_warning
    try:
        with end_on_terminate():
            app()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        end(error)
