"""``neuralcov train``: a network of the zoo from nothing to weights with a card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from neuralcov.cli import options
from neuralcov.cli.console import output
from neuralcov.core.arguments import usable_device
from neuralcov.sources.names import split_call
from neuralcov_lab import training
from neuralcov_lab.training.card import card_path


def train(
    network: Annotated[str, typer.Argument(help=f"{', '.join(training.RECIPES)}; NAME(arg=value) builds it so.")],
    to: Annotated[Path, typer.Option("--output", "-o", help="The weights, .safetensors; a .json card goes beside.")],
    data: Annotated[
        str | None, typer.Option(help="A data set of the zoo, or folder:PATH; the network's own by default.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Your own copy of the data set, in a usual layout.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training data.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Be done in time; the learning rate follows.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Inputs per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="The highest learning rate.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Use only so many inputs of each split.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random choice.")] = 0,
    device: options.Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped.")] = False,
    half: Annotated[bool, typer.Option("--half", help="Write the weights in float16.")] = False,
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
        compile=compile_network,
        arguments=arguments,
    )
    card = training.train(name, to, data, settings, _show)
    epochs_made = f"{card.epochs} epoch{'' if card.epochs == 1 else 's'}"
    console = output()
    console.print(f"{card.network} on {card.data}: {_results(card.results) or 'trained'} after {epochs_made}")
    console.print(f"{card.seconds:.0f} s on {card.device}; weights in {to}, card in {card_path(to)}", soft_wrap=True)


def _show(standing: training.Report) -> None:
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
