"""Find what a command line names: ``package.module:factory``, with arguments in brackets if need be."""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import HyperParameterError, InputError
from neuralcov.core.find_criterion import criterion_class
from neuralcov.core.hyper_parameters import parameters_of
from neuralcov.sources.samples import Samples


def split_call(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and keyword arguments of ``name`` or ``name(argument=value, …)``.

    >>> split_call("resnet50(num_classes=100)")
    ('resnet50', {'num_classes': 100})
    """
    name, bracket, rest = text.partition("(")
    if not bracket:
        return text, {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        return name, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as error:
        raise InputError(f"{text!r}: expected plain keyword arguments, as in 'resnet50(num_classes=10)'") from error


def imported(module: str, attribute: str, what: str) -> Any:
    """Import ``module.attribute``, from the current folder too."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise InputError(f"{what} {module}:{attribute}: there is no module {error.name!r} to import") from error
        raise
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{what} {module}:{attribute}: {module} has no {attribute!r}")
        found = getattr(found, part)
    return found


GROUP = "neuralcov.sources"
# Whose prefix it is, so that a person without the package reads what to install.
_PACKAGES = {"zoo": "neuralcov-lab"}


class Source(Protocol):
    """Offer models and data of one prefix, by a class under the entry point group ``neuralcov.sources``."""

    def model(self, name: str, **arguments: Any) -> nn.Module:
        """Build a model."""

    def data(self, name: str, split: str = "test", folder: Path | str | None = None) -> Samples:
        """Return a split of a data set, from the user's own folder if one is given."""


def offered(prefix: str) -> Source | None:
    """Return the source of a prefix, or ``None`` where no installed package offers one.

    >>> offered("demo").data("digits").name
    'digits test'
    """
    for entry in entry_points(group=GROUP, name=prefix):
        return cast(Source, entry.load()())
    if prefix in _PACKAGES:
        raise InputError(f"{prefix}: comes with the package {_PACKAGES[prefix]}, which is not installed here")
    return None


def criterion_from_text(text: str) -> Criterion[Any]:
    """Return the criterion that a command line names: ``nlc``, ``nc:0.75``, ``lsc:10,by=label``, or as it is printed.

    >>> criterion_from_text("nc:0.5").name, criterion_from_text("LSC(10, by=label)").name
    ('NC(0.5)', 'LSC(10, by=label)')
    """
    head, _, tail = text.strip().partition(":")
    printed = re.fullmatch(r"(\w+)\s*\((.*)\)", text.strip())
    if printed is not None:
        head, tail = printed.groups()
    cls = criterion_class(head.strip())
    if cls is None:
        names = sorted(name for name in Criterion.known if criterion_class(name) is not None)
        raise HyperParameterError(f"{text!r}: no criterion is called {head!r}; there are {', '.join(names)}")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in tail.split(","))):
        key, equals, value = part.partition("=")
        if equals:
            named[key.strip()] = _literal(value.strip())
        elif named:
            raise HyperParameterError(f"{text!r}: {part!r} stands after a named argument; write it as name=value")
        else:
            positional.append(_literal(part))
    allowed = [f.name for f in parameters_of(cls)]
    unknown = [key for key in named if key not in allowed]
    if unknown or len(positional) > len([f for f in parameters_of(cls) if not f.kw_only]):
        culprit = unknown[0] if unknown else str(positional[-1])
        takes = ", ".join(allowed) if allowed else "nothing"
        raise HyperParameterError(f"{text!r}: {cls.__name__} takes {takes}; it has no place for {culprit!r}")
    return cls(*positional, **named)


def _literal(text: str) -> Any:
    """Read a number, a truth value or ``none``; anything else is text."""
    special = {"true": True, "false": False, "none": None}
    if text.lower() in special:
        return special[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
