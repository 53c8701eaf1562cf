"""``neuralcov combine``: one state file from several, for suites measured apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli.console import output
from neuralcov.coverage import Coverage
from neuralcov.report import measurement, value_table


def combine(
    files: Annotated[list[Path], typer.Argument(help="State files of the same model, criteria and calibration.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="The combined state file.")],
) -> None:
    """Merge coverage states."""
    total = Coverage.load(files[0])
    for path in files[1:]:
        total.merge(Coverage.load(path))
    total.save(to)
    result = measurement(total, model=f"{len(files)} files", suite=str(to), inputs=total.inputs)
    output().print(value_table(result))
