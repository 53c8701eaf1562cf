"""Options of the fuzz commands; those of ``run`` that are settings are made from the fields of FuzzSettings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from neuralcov.fuzz.rules import RULES, settings_of
from neuralcov.fuzz.settings import FuzzSettings

Folder = Annotated[Path, typer.Argument(help="The campaign's folder.")]
Iterations = Annotated[int | None, typer.Option("--iterations", "-n", min=1, help="Stop after so many seeds.")]
Minutes = Annotated[float | None, typer.Option(min=0.001, help="Stop after so many minutes.")]
Faults = Annotated[int | None, typer.Option(min=1, help="Stop once so many faults are found.")]
UntilNew = Annotated[
    float | None,
    typer.Option(help="Stop when a further mutant shows something new with less than this chance, such as 0.001."),
]
Calls = Annotated[int | None, typer.Option(min=1, help="Stop once the model was run on so many mutants.")]
Rules = Annotated[
    str | None,
    typer.Option(
        help=f"Settings by name: {', '.join(RULES)}; published: those of the NLC paper's artefact; paper: of its text. "
        "Options beside it go first."
    ),
]
FailOnFaults = Annotated[bool, typer.Option("--fail-on-faults", help="Exit with 1 if there are faults.")]
OwnModel = Annotated[
    str | None,
    typer.Argument(help="The model, as for fuzz run; --trust takes what the folder names.", metavar="[MODEL]"),
]
Numbers = Annotated[list[int] | None, typer.Argument(help="Numbers of faults; all by default.")]
Data = Annotated[str | None, typer.Option(help="What the seeds came from, where the folder does not tell enough.")]
Against = Annotated[str | None, typer.Option(help="The second model, if the campaign had one.")]
AgainstWeights = Annotated[Path | None, typer.Option(help="Its weights.")]
Styles = Annotated[str | None, typer.Option(help="The folder of styles, if the campaign had one.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; by default as before.")]
Trust = Annotated[bool, typer.Option("--trust", help="Use the names of models and data that stand in the folder.")]
Shrink = Annotated[bool, typer.Option(help="At the end, leave out mutations that the pictured faults do not need.")]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option per field of FuzzSettings, in place of its parameter ``settings``.

    What a person does not give comes from the settings that ``--rules`` names.
    """
    signature = inspect.signature(command, eval_str=True)
    hints = get_type_hints(FuzzSettings)
    names = [entry.name for entry in fields(FuzzSettings)]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context]
    for parameter in signature.parameters.values():
        if parameter.name != "settings":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for entry in fields(FuzzSettings):
            kind = entry.metadata["option"] or hints[entry.name]
            option = Annotated[kind, typer.Option(help=entry.metadata["help"])]  # type: ignore[valid-type]
            parameters.append(
                inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=entry.default, annotation=option)
            )

    @functools.wraps(command)
    def wrapped(context: typer.Context, **given: Any) -> None:
        told = {name: given.pop(name) for name in names}
        chosen = {name: value for name, value in told.items() if _was_given(context, name)}
        settings = settings_of(given.pop("rules")).changed(**chosen)
        command(**given, settings=settings)

    # Typer reads options from the signature.
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def _was_given(context: typer.Context, name: str) -> bool:
    """Return whether a person gave an option, on the command line or in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
