"""The commands. Exit codes: 0 fine, 1 faults found where asked or not found again, 2 wrong use, 130 interrupted."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import entry_points

import typer

from neuralcov.cli.combine import combine
from neuralcov.cli.console import complain, show_warning
from neuralcov.cli.demo import demo
from neuralcov.cli.fuzz import fuzz
from neuralcov.cli.layers import layers
from neuralcov.cli.measure import measure
from neuralcov.core.errors import NeuralcovError
from neuralcov.sources.models import raised_by_model

app = typer.Typer(
    name="neuralcov",
    help="Test coverage for neural networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, layers, measure, combine):
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
    """Run a command; a user's mistake ends in one sentence and exit code 2."""
    warnings.showwarning = show_warning
    try:
        app()
    except NeuralcovError as error:
        complain(str(error))
        sys.exit(2)
    except OSError as error:
        complain(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(2)
    except Exception as error:
        if not raised_by_model(error):
            raise
        first = next(iter(str(error).splitlines()), "")
        complain(f"the model failed with {type(error).__name__}: {first}; check that the inputs are what it takes")
        sys.exit(2)
