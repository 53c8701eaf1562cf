"""The commands; :mod:`neuralcov.cli.exits` says how they end."""

from __future__ import annotations

import warnings

import typer

from neuralcov.cli.combine import combine
from neuralcov.cli.console import show_warning
from neuralcov.cli.data import data
from neuralcov.cli.demo import demo
from neuralcov.cli.exits import end
from neuralcov.cli.fuzz import fuzz
from neuralcov.cli.layers import layers
from neuralcov.cli.measure import measure
from neuralcov.cli.reproduce import reproduce
from neuralcov.cli.train import train

app = typer.Typer(
    name="neuralcov",
    help="Test coverage for neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, layers, measure, combine, train, reproduce):
    app.command()(command)
app.add_typer(data, name="data")
app.add_typer(fuzz, name="fuzz")


def main() -> None:
    """Run a command; every error ends in one sentence and an exit code that tells whose it was."""
    warnings.showwarning = show_warning
    try:
        app()
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        end(error)
