"""``neuralcov combine``: one state file from several, for suites measured apart."""

from __future__ import annotations

from typing import Annotated

import typer

from neuralcov.cli.console import note, output
from neuralcov.core.errors import MismatchError, SameInputsError
from neuralcov.core.files import name_of
from neuralcov.coverage.coverage import Coverage
from neuralcov.report import value_table


def combine(
    files: Annotated[list[str], typer.Argument(help="State files of the same model, criteria and calibration.")],
    to: Annotated[str, typer.Option("--output", "-o", help="The combined state file.")],
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Join suites that have more than 1 % of their inputs in common.")
    ] = False,
) -> None:
    """Merge coverage states. A file whose runs are all there already is skipped."""
    total = Coverage.load(files[0])
    for path in files[1:]:
        part = Coverage.load(path)
        try:
            total.merge(part, overlap="allow" if allow_overlap else "refuse")
        except MismatchError as error:
            if not isinstance(error, SameInputsError) or not total.has_runs_of(part):
                raise type(error)(f"{name_of(path)}: {error}") from error
            note(f"{name_of(path)}: skipped, all of its {part.inputs} inputs are there already")
    total.save(to)
    result = total.results(model=f"{len(files)} files", suite=name_of(to))
    output().print(value_table(result))
