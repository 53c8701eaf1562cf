"""``neuralcov combine``: one state file from several, for suites measured apart."""

from __future__ import annotations

from typing import Annotated

import typer

from neuralcov.cli.console import note, output
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.files import name_of
from neuralcov.coverage.combining import combine as combine_files
from neuralcov.coverage.combining import expanded, side_by_side
from neuralcov.coverage.uniting import OVER
from neuralcov.report import value_table


def combine(
    files: Annotated[
        list[str], typer.Argument(help="State files of the same model, criteria and calibration, or 'part-*.ncov'.")
    ],
    to: Annotated[str, typer.Option("--output", "-o", help="The combined state file.")],
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Join suites that have more than 1 % of their inputs in common.")
    ] = False,
    over: Annotated[
        str,
        typer.Option(
            metavar="inputs|layers|stages",
            help="What the files are parts of: the inputs; the layers, measured on the same inputs; or the stages of a "
            "pipeline, in order, each on the outputs of the one before.",
        ),
    ] = "inputs",
) -> None:
    """Merge coverage states. A file whose runs are all there already is skipped."""
    places = expanded(files)
    if over == "inputs":
        total = combine_files(places, overlap="allow" if allow_overlap else "refuse", skipped=note)
    elif over in OVER:
        total = side_by_side(places, over)
    else:
        raise InputError(f"--over {over}: expected inputs, layers or stages")
    total.save(to)
    result = total.results(model=f"{counted(len(places), 'file')}", suite=name_of(to))
    output().print(value_table(result))
