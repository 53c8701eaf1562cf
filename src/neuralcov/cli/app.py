"""The commands; ``neuralcov.cli.exits`` says how they end."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from neuralcov import __version__
from neuralcov.cli.console import output, show_warning
from neuralcov.cli.declared import COMMANDS, declarations, defined, stand_in
from neuralcov.cli.exits import end
from neuralcov.cli.streams import QUIET, end_on_terminate, json_to_output, prepare_streams, quieten

_HELP = "-h", "--help"


class _Commands(TyperGroup):
    """The commands by name. They are imported when they are run, and not to show their help or to complete a word."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *sorted(set(_offered()) - set(COMMANDS))]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return _made(cmd_name, stand_in(cmd_name, declarations()[cmd_name]))
        entry = _offered().get(cmd_name)
        return None if entry is None else _made(cmd_name, _announced(entry))

    @override
    def get_params(self, ctx: Any) -> Any:
        return _untyped(super().get_params(ctx))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        only_shown = ctx.resilient_parsing or any(text in _HELP for text in rest)
        if name in _offered() and name not in COMMANDS:
            # Packages declare nothing beforehand.
            return name, _made(name, _offered()[name].load()), rest
        return (name, command, rest) if only_shown or name is None else (name, _made(name, defined(name)), rest)


app = typer.Typer(
    name="neuralcov",
    help="Test coverage for neural networks.",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output().print(f"neuralcov {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option(*QUIET, help="Print errors only, here or behind the command; the exit code says the rest.")
    ] = False,
) -> None:
    """Test coverage for neural networks."""


def main() -> None:
    """Run a command; every error ends in one sentence and an exit code that tells whose it was."""
    prepare_streams()
    warnings.showwarning = show_warning
    try:
        with end_on_terminate(), quieten(sys.argv) as words, json_to_output(words) as arguments:
            app(args=arguments[1:])
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        end(error)


def _offered() -> dict[str, EntryPoint]:
    """Return the commands of other packages, such as neuralcov-lab's data, train and reproduce."""
    return {entry.name: entry for entry in entry_points(group="neuralcov.commands")}


def _announced(entry: EntryPoint) -> Any:
    """Say whose command it is, without importing it."""

    def command() -> None: ...

    command.__doc__ = f"Comes with {entry.dist.name}." if entry.dist is not None else "Comes with another package."
    return command


def _made(name: str, declared: Any) -> Any:
    """Return what typer makes of a function, or of a group of commands."""
    outer = typer.Typer(add_completion=False)
    outer.callback()(lambda: None)
    if isinstance(declared, typer.Typer):
        outer.add_typer(declared, name=name)
    else:
        outer.command(name)(declared)
    return _without_bools(typer.main.get_group(outer).commands[name])


def _without_bools(command: Any) -> Any:
    """Let the help of a command say no type of its flags, which take no value."""
    for inner in getattr(command, "commands", {}).values():
        _without_bools(inner)
    get_params = command.get_params
    command.get_params = lambda ctx: _untyped(get_params(ctx))
    return command


def _untyped(parameters: Any) -> Any:
    for parameter in parameters:
        # Versions of typer that show no type of flags have no such method.
        if getattr(parameter, "is_flag", False) and hasattr(parameter, "display_type_rich"):
            parameter.display_type_rich = lambda ctx: None
    return parameters
