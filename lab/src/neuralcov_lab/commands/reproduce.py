"""``neuralcov reproduce``: the NLC paper's experiments, and a report of what agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli import options
from neuralcov.cli.console import note, output
from neuralcov.core.arguments import usable_device
from neuralcov.core.errors import InputError
from neuralcov_lab.experiments import PLANS, SCALES, CellFolder, Outcome, Workbench, cells_of, run_cells

_REPORT = "report"


def reproduce(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"{', '.join(PLANS)}, all; report only writes the report.")
    ],
    scale: Annotated[str, typer.Option(help="smoke: minutes on two cores; full: one GPU.")] = "smoke",
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where results go, and are taken up again.")] = Path(
        "reproduced"
    ),
    device: options.Device = "cpu",
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds after which nothing new is started.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Compute only cells of such names, like '*.vgg16_bn.*'; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random choice.")] = 0,
    divide: Annotated[int, typer.Option(min=1, help="Divide the numbers of inputs, to try things out.")] = 1,
    report: Annotated[bool, typer.Option(help="Write tables and figures at the end.")] = True,
) -> None:
    """Repeat the paper's experiments; stop at any time and call again to go on. Exit with 1 if cells failed."""
    kept, failed = CellFolder(folder), False
    if _REPORT in names:
        if len(names) > 1:
            raise InputError(f"'report' stands alone: leave out {', '.join(n for n in names if n != _REPORT)}")
    else:
        if scale not in SCALES:
            raise InputError(f"--scale {scale}: expected {' or '.join(SCALES)}")
        sizes = SCALES[scale].smaller(divide)
        bench = Workbench(sizes, usable_device(device), seed)
        show = output()
        outcome = run_cells(
            cells_of(names, sizes),
            kept,
            bench,
            budget=budget,
            only=only or (),
            notify=lambda line: show.print(line, highlight=False),
        )
        _tell(outcome)
        failed = bool(outcome.failed)
    if report:
        from neuralcov_lab.experiments.report import write_report

        for path in write_report(kept):
            output().print(f"written: {path}", highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _tell(outcome: Outcome) -> None:
    output().print(
        f"{len(outcome.computed)} cells computed, {len(outcome.kept)} kept from before, {len(outcome.failed)} failed, "
        f"{len(outcome.not_run)} not run",
        highlight=False,
    )
    for name, reason in outcome.failed.items():
        note(f"{name} failed: {reason}")
    for name, expected in outcome.not_run.items():
        note(f"{name} was not run" + ("" if expected is None else f"; about {expected:.0f} s"))
