"""Commands as they are declared, without importing what they do: that takes seconds, most of them PyTorch's.

``declared.json`` holds every command's words and options, so that ``--help`` and completion answer at once. It is made
from the commands themselves by ``python -m tools.declare``, and a test sees to it that it is up to date.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

# In the order of the help: where each command is defined.
COMMANDS = {
    "demo": "demo:demo",
    "layers": "layers:layers",
    "measure": "measure:measure",
    "show": "show:show",
    "report": "report:report",
    "compare": "gate:compare",
    "gate": "gate:gate",
    "verify": "verify:verify",
    "combine": "combine:combine",
    "rank": "ranking:rank",
    "select": "ranking:select",
    "minimise": "ranking:minimise",
    "selftest": "selftest:selftest",
    "doctor": "doctor:doctor",
    "fuzz": "fuzz:fuzz",
}
_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "Path": Path, "Context": typer.Context}
_SHOWN = ("help", "metavar", "min", "max", "hidden", "show_default")


def defined(name: str) -> Any:
    """Import a command: a function, or a group of commands."""
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"neuralcov.cli.{module}"), attribute)


def declarations() -> dict[str, Any]:
    """Return what is declared of every command, by name."""
    text = files("neuralcov.cli").joinpath("declared.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def stand_in(name: str, declared: Mapping[str, Any]) -> Any:
    """Return a command, or a group, that shows the same help; if it is called all the same, it does what that does."""
    if "commands" in declared:
        group = typer.Typer(help=declared["help"], no_args_is_help=True)
        for inner, its in declared["commands"].items():
            group.command(inner)(_function(its, _refuse))
        return group
    return _function(declared, lambda: defined(name))


def declare(command: Any) -> dict[str, Any]:
    """Describe a command, or a group, as ``declared.json`` has it."""
    if isinstance(command, typer.Typer):
        inner: dict[str, Any] = {}
        for entry in command.registered_commands:
            assert entry.callback is not None
            inner[entry.name or entry.callback.__name__] = declare(entry.callback)
        return {"help": command.info.help, "commands": inner}
    signature = inspect.signature(command)
    hints = get_type_hints(command, include_extras=True)
    parameters = [_parameter(name, hints[name], entry.default) for name, entry in signature.parameters.items()]
    return {"help": inspect.getdoc(command), "parameters": parameters}


def _parameter(name: str, hint: Any, default: Any) -> dict[str, Any]:
    plain, info = hint, None
    if get_origin(hint) is Annotated:
        plain, info = get_args(hint)[:2]
    found: dict[str, Any] = {"name": name, "type": _type_text(plain)}
    if default is not inspect.Parameter.empty:
        found["default"] = str(default) if isinstance(default, Path) else default
    if info is None:
        return found
    found["argument"] = isinstance(info, ArgumentInfo)
    plainest = type(info)()
    more = {key: getattr(info, key) for key in _SHOWN if getattr(info, key) != getattr(plainest, key)}
    # Within Annotated, the first of the names stands where a default would.
    names = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)]
    return found | more | ({"names": names} if names else {})


def _type_text(hint: Any) -> str:
    """Write a type as it is read again: names, ``list[…]``, ``tuple[…]`` and ``| None``."""
    return (
        hint.__name__
        if isinstance(hint, type) and not get_args(hint)
        else re.sub(r"pathlib\.(_local\.)?", "", str(hint))
    )


def _function(declared: Mapping[str, Any], real: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function with the declared words and signature."""

    def function(**given: Any) -> Any:
        return real()(**given)

    parameters = [_restored(entry) for entry in declared["parameters"]]
    function.__doc__ = declared["help"]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return function


def _restored(entry: Mapping[str, Any]) -> inspect.Parameter:
    hint: Any = eval(entry["type"], {"__builtins__": {}, "list": list, "tuple": tuple, **_TYPES})  # our own file
    default = entry.get("default", inspect.Parameter.empty)
    if "argument" in entry:
        make = typer.Argument if entry["argument"] else typer.Option
        shown = {key: entry[key] for key in _SHOWN if key in entry}
        hint = Annotated[hint, make(*entry.get("names", ()), **shown)]
    if isinstance(default, str) and "Path" in entry["type"]:
        default = Path(default)
    return inspect.Parameter(entry["name"], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _refuse() -> Any:
    raise RuntimeError("a command that only shows its help was called")
