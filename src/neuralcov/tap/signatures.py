"""What a module's ``forward`` can be called with, read once from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class Form:
    """The arguments of a ``forward``.

    Args:
        positional: names of the arguments that can be given by position, in order.
        required: how many of these have no default.
        keywords: names of the arguments that can be given by keyword.
        any_keyword: whether any other keyword is taken too.
        mappings: whether an argument is annotated as a mapping, as a dictionary of features is.
    """

    positional: tuple[str, ...] = ()
    required: int = 0
    keywords: frozenset[str] = frozenset()
    any_keyword: bool = False
    mappings: bool = False

    def takes(self, keyword: str) -> bool:
        """Return whether an argument can be given by this keyword."""
        return self.any_keyword or keyword in self.keywords

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Name the arguments of a call; those of ``*args`` have no name and are left out."""
        return {**dict(zip(self.positional, args, strict=False)), **kwargs} if args else kwargs


def form_of(module: nn.Module) -> Form:
    """Return what a module can be called with; scripted modules tell by their schema.

    >>> form_of(nn.Linear(1, 1)).positional, form_of(nn.Bilinear(1, 1, 1)).required
    (('input',), 2)
    """
    if isinstance(module, torch.jit.ScriptModule):
        return _of_schema(module)
    function = getattr(module.forward, "__func__", None)
    # Remembered by the class's function alone: one that belongs to a module would keep it alive.
    return _of_method(function) if function is not None else _of_function(module.forward, skip=0)


@lru_cache(maxsize=1024)
def _of_method(function: Callable[..., Any]) -> Form:
    return _of_function(function, skip=1)


def _of_function(function: Callable[..., Any], skip: int) -> Form:
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):  # built in, without a signature
        return Form(any_keyword=True)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    return Form(
        positional=tuple(parameter.name for parameter in positional),
        required=sum(parameter.default is parameter.empty for parameter in positional),
        keywords=frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)),
        any_keyword=any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
        mappings=any(_is_mapping(p.annotation) for p in positional),
    )


def _of_schema(module: torch.jit.ScriptModule) -> Form:
    schema = getattr(module.forward, "schema", None)
    if schema is None:
        return Form(any_keyword=True)
    arguments = schema.arguments[1:]
    positional = [argument for argument in arguments if not argument.kwarg_only]
    return Form(
        positional=tuple(argument.name for argument in positional),
        required=sum(not argument.has_default_value() for argument in positional),
        keywords=frozenset(argument.name for argument in arguments),
    )


def _is_mapping(annotation: object) -> bool:
    words = str(annotation).lower()
    return "dict" in words or "mapping" in words
