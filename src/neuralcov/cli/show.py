"""``neuralcov show``: what a saved state holds."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from neuralcov.cli.console import print_result
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.files import name_of
from neuralcov.coverage.coverage import Coverage


def show(
    file: Annotated[str, typer.Argument(help="A state file (.ncov).")],
    by_layer: Annotated[bool, typer.Option("--by-layer", help="Show every layer as well.")] = False,
    missing: Annotated[bool, typer.Option("--missing", help="List neurons of which nothing is covered.")] = False,
    json: Annotated[str | None, typer.Option(help="Write the result as JSON.")] = None,
) -> None:
    """Show a saved coverage state."""
    coverage = Coverage.load(file)
    with warnings.catch_warnings():
        # Findings stand in the result.
        warnings.simplefilter("ignore", CoverageWarning)
        result = coverage.results(suite=name_of(file), missing=missing)
    if json is not None:
        result.write(json)
    print_result(result, by_layer=by_layer, findings=True)
