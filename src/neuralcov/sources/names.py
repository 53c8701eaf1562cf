"""Things named on the command line: ``package.module:factory``, with arguments in brackets if need be."""

from __future__ import annotations

import ast
import importlib
import os
import sys
from typing import Any

from neuralcov.core.errors import InputError


def split_call(text: str) -> tuple[str, dict[str, Any]]:
    """The name and keyword arguments of ``name`` or ``name(argument=value, …)``.

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
    """``module.attribute``, found from the current folder too."""
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
