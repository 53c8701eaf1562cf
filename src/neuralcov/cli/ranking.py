"""``neuralcov rank``, ``select`` and ``minimise``: which inputs to look at first, to label, to keep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from neuralcov.cli import options
from neuralcov.cli.console import note, output
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.files import is_file, require_writable
from neuralcov.coverage.coverage import Coverage
from neuralcov.rank import Queue
from neuralcov.rank import minimise as keep_few
from neuralcov.rank import rank as rank_inputs
from neuralcov.rank import select as select_inputs
from neuralcov.rank.scorers import MOST_TRACES
from neuralcov.results.input_table import writer_for
from neuralcov.sources.data import NamedData, load_data, parse_channels
from neuralcov.sources.models import load_model, weights_of
from neuralcov.sources.names import criterion_from_text
from neuralcov.sources.npz import parse_padding
from neuralcov.sources.samples import Batches

Inputs = Annotated[
    str, typer.Option("--data", help="The inputs: zoo:NAME, folder:PATH, npz:PATH, hf:PATH or module:factory.")
]
Training = Annotated[str | None, typer.Option("--calibrate", help="Training data, or a saved calibration (.ncal).")]
To = Annotated[str | None, typer.Option("--output", "-o", help="Write the queue (.csv or .jsonl).")]
Labels = Annotated[
    str | None,
    typer.Option(help="CSV with id,label of a few hundred of the inputs: learn from them what tells faults."),
]
Layer = Annotated[str | None, typer.Option(help="Where surprise is measured; else the last layer before the output.")]
Traces = Annotated[int, typer.Option(min=1, help="Training inputs to measure surprise against, at most.")]
Work = Annotated[str | None, typer.Option(help="Keep what was found in this file; a run that was stopped goes on.")]
Page = Annotated[str | None, typer.Option(help="Write a page of the first 64 inputs and the reasons (.html).")]
States = Annotated[
    bool, typer.Option("--states", help="Rank by hidden states alone: for embeddings, or before inputs are answered.")
]
Show = Annotated[int, typer.Option(min=0, help="How many of the first inputs to show.")]


@dataclass(frozen=True, eq=False)
class _Setup:
    """Hold what the options name."""

    coverage: Coverage
    data: NamedData
    training: NamedData | None
    notes: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where the data have some."""
        loader = self.data.loader
        return loader.samples.classes if isinstance(loader, Batches) else ()

    @property
    def scaling(self) -> dict[str, tuple[float, ...]] | None:
        """Return what was done to pixels, where the data say it."""
        loader = self.data.loader
        if not isinstance(loader, Batches) or not loader.samples.mean:
            return None
        return {"mean": loader.samples.mean, "std": loader.samples.std}

    @property
    def folder(self) -> str | None:
        """The folder that ids are paths below."""
        kind, _, path = self.data.name.partition(":")
        return path if kind == "folder" else None

    def arguments(self) -> dict[str, Any]:
        """Return what ``rank`` and ``select`` take."""
        training = None if self.training is None else self.training.loader
        return {"training": training, "classes": self.classes, "folder": self.folder}


def rank(
    model: options.Model,
    data: Inputs,
    calibrate: Training = None,
    weights: options.Weights = None,
    to: To = None,
    labels: Labels = None,
    layer: Layer = None,
    traces: Traces = MOST_TRACES,
    states: States = False,
    work: Work = None,
    page: Page = None,
    show: Show = 20,
    layers: options.Layers = None,
    pool: options.Pool = "mean",
    mean: options.Mean = None,
    std: options.Std = None,
    padding: options.Padding = "0",
    batch_size: options.BatchSize = 100,
    device: options.Device = "cpu",
) -> None:
    """Rank inputs by how likely the model gets them wrong; they need no labels."""
    _check_outputs(to, page)
    criteria = ["dsc", "lcc"]
    made = _set_up(model, data, calibrate, weights, layers, mean, std, padding, batch_size, device, criteria, pool)
    queue = rank_inputs(
        made.coverage,
        made.data.loader,
        labels=labels,
        layer=layer,
        traces=traces,
        states=states,
        work=work,
        **made.arguments(),
    )
    title = f"{counted(len(queue), 'input')} of {made.data.name}, most suspicious first"
    _deliver(queue, made, to, show, title, page)


def select(
    model: options.Model,
    data: Inputs,
    budget: Annotated[int, typer.Option(min=1, help="How many inputs to select.")],
    calibrate: Training = None,
    weights: options.Weights = None,
    to: To = None,
    labels: Labels = None,
    layer: Layer = None,
    traces: Traces = MOST_TRACES,
    states: States = False,
    work: Work = None,
    page: Page = None,
    show: Show = 20,
    layers: options.Layers = None,
    pool: options.Pool = "mean",
    mean: options.Mean = None,
    std: options.Std = None,
    padding: options.Padding = "0",
    batch_size: options.BatchSize = 100,
    device: options.Device = "cpu",
) -> None:
    """Select inputs to label: as rank orders them, without near duplicates."""
    _check_outputs(to, page)
    criteria = ["dsc", "lcc"]
    made = _set_up(model, data, calibrate, weights, layers, mean, std, padding, batch_size, device, criteria, pool)
    queue = select_inputs(
        made.coverage,
        made.data.loader,
        budget,
        labels=labels,
        layer=layer,
        traces=traces,
        states=states,
        work=work,
        **made.arguments(),
    )
    title = f"{counted(len(queue), 'input')} of {made.data.name} to label, most suspicious first"
    _deliver(queue, made, to, show, title, page)


def minimise(
    model: options.Model,
    data: Inputs,
    keep: Annotated[float, typer.Option(help="Share of every criterion's value to keep.")] = 0.95,
    criteria: Annotated[
        list[str] | None,
        typer.Option(
            "--criterion", "-c", help="Submodular ones, such as nc:0.75 or kmnc; repeat it. Else lcc:over=mean."
        ),
    ] = None,
    calibrate: Training = None,
    weights: options.Weights = None,
    to: To = None,
    memory: Annotated[str, typer.Option(help="What activations of the suite may take.")] = "8GiB",
    show: Show = 20,
    layers: options.Layers = None,
    mean: options.Mean = None,
    std: options.Std = None,
    padding: options.Padding = "0",
    batch_size: options.BatchSize = 100,
    device: options.Device = "cpu",
) -> None:
    """Keep few inputs that cover nearly as much as all of them."""
    _check_outputs(to)
    chosen = criteria or ["lcc:over=mean"]
    made = _set_up(model, data, calibrate, weights, layers, mean, std, padding, batch_size, device, chosen)
    if made.training is not None:
        made.coverage.calibrate(made.training.loader)
    few = keep_few(made.coverage, made.data.loader, keep, memory=memory, folder=made.folder)
    _deliver(few, made, to, show, f"{len(few):,} of {counted(few.names.count, 'input')} of {made.data.name} to keep")
    console = output()
    for name, whole in few.whole.items():
        share = few.kept[name] / whole if whole else 1.0
        console.print(f"{name}: {few.kept[name]:.6g} of {whole:.6g} kept ({share:.1%})", highlight=False)
    console.print(
        f"no fewer than {few.at_least:,} of the inputs keep as much, so that these are at most {few.factor:.2f} times "
        "the fewest",
        highlight=False,
    )


def _check_outputs(to: str | None, *others: str | None) -> None:
    """Try every place to write to before anything is ranked."""
    if to is not None:
        writer_for(to)
    for place in (to, *others):
        require_writable(place)


def _set_up(
    model: str,
    data: str,
    calibrate: str | None,
    weights: Path | None,
    layers: str | None,
    mean: str | None,
    std: str | None,
    padding: str,
    batch_size: int,
    device: str,
    criteria: list[str],
    pool: str = "mean",
) -> _Setup:
    net = load_model(model, weights, device)
    _, told = weights_of(model, net, weights)
    scaling = {"mean": parse_channels(mean), "std": parse_channels(std)}
    read = partial(
        load_data,
        batch_size=batch_size,
        mean=scaling["mean"],
        std=scaling["std"],
        padding=parse_padding(padding),
    )
    chosen = [criterion_from_text(text) for text in criteria]
    preprocessing = scaling if any(scaling.values()) else None
    coverage = Coverage(net, chosen, layers=layers, preprocessing=preprocessing, pool=pool)
    training = None
    if calibrate is not None and is_file(calibrate):
        coverage.calibrate(calibrate)
    elif calibrate is not None:
        training = read(calibrate, split="train")
    elif any(criterion.learns for criterion in chosen):
        raise InputError("give --calibrate: training data, or a saved calibration (.ncal)")
    suite = read(data)
    said = (told, suite.note, None if training is None else training.note)
    return _Setup(coverage, suite, training, tuple(dict.fromkeys(text for text in said if text is not None)))


def _deliver(queue: Queue, made: _Setup, to: str | None, show: int, title: str, page: str | None = None) -> None:
    """Write files first: whoever reads the output may stop reading. The page reads the data once more."""
    if to is not None:
        queue.write(to)
    if page is not None:
        queue.page(page, made.data.loader, title=title, preprocessing=made.scaling)
    for sentence in (*made.notes, *queue.notes):
        note(sentence)
    if queue.weights:
        note("weights: " + ", ".join(f"{name} {weight:+.2f}" for name, weight in queue.weights.items()))
    if not show:
        return
    table = Table(title=title, title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("id", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("why", overflow="fold")
    for row in queue[:show]:
        table.add_row(str(row.rank), Text(str(row.id)), f"{row.score:.3f}", Text(row.why))
    output().print(table)
