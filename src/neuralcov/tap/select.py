"""Which modules of a model are its layers."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import nn

from neuralcov.core.errors import CoverageWarning, LayerError
from neuralcov.core.names import matching
from neuralcov.tap.kinds import is_layer_by_default, is_unreadable

LayerChoice: TypeAlias = "str | re.Pattern[str] | type[nn.Module] | Sequence[str | type[nn.Module]] | None"

_COMPILED = "_orig_mod"
_LISTED = 40


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every module of a model by qualified name; the model itself goes by its class."""
    named = {}
    for name, module in model.named_modules():
        parts = [part for part in name.split(".") if part != _COMPILED]
        named[".".join(parts) or type(model).__name__] = module
    return named


def choose_layers(model: nn.Module, choice: LayerChoice = None) -> dict[str, nn.Module]:
    """The modules that count as layers, by qualified name.

    Args:
        model: any module.
        choice: ``None`` for all weighted layers; globs joined by ``|`` on the whole qualified name (``*``
            crosses dots, a part that starts with ``!`` takes away); a compiled regular expression, matched
            against the whole name; a list of names; or module types. Globs and expressions pick among the
            kinds that count by default and, if they match none of these, among all modules.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> list(choose_layers(net)), list(choose_layers(net, "2")), list(choose_layers(net, nn.ReLU))
    (['0', '2'], ['2'], ['1'])
    """
    named = named_layers(model)
    attention = tuple(n for n, m in named.items() if isinstance(m, nn.MultiheadAttention))
    # The inner projection of an attention module is a Linear that never runs as a module.
    inner = {f"{name}.out_proj" for name in attention}
    scripted = _inside_scripted(named)
    default = {n: m for n, m in named.items() if n not in inner and n not in scripted and is_layer_by_default(m)}
    chosen = _pick(named, default, choice)
    hidden = [n for n, m in named.items() if (n in scripted and is_layer_by_default(m)) or is_unreadable(m)]
    if hidden and choice is None:
        _say_hidden(hidden, nothing_else=not chosen)
    if not chosen:
        wanted = "a layer with weights" if choice is None else f"layers={_describe(choice)}"
        raise LayerError(f"no module matches {wanted}; {type(model).__name__} has {_listing(default or named)}")
    return chosen


def _inside_scripted(named: dict[str, nn.Module]) -> list[str]:
    """Modules inside scripted or traced ones: these run as a whole, without calling the modules they were made of."""
    whole = tuple(name for name, module in named.items() if isinstance(module, torch.jit.ScriptModule))
    if any(named[name] is next(iter(named.values())) for name in whole):
        return list(named)[1:]
    return [name for name in named if name.startswith(tuple(f"{outer}." for outer in whole))] if whole else []


def _say_hidden(hidden: list[str], *, nothing_else: bool) -> None:
    sentence = (
        f"{len(hidden)} layers cannot be measured, being parts of scripted or traced modules that run as a whole: "
        f"{', '.join(map(repr, hidden[:_LISTED]))}; measure the model before it was scripted"
    )
    if nothing_else:
        raise LayerError(sentence)
    warnings.warn(sentence, CoverageWarning, stacklevel=5)


def _pick(named: dict[str, nn.Module], default: dict[str, nn.Module], choice: LayerChoice) -> dict[str, nn.Module]:
    if choice is None:
        return default
    if isinstance(choice, str):
        return _by_glob(default, choice) or _by_glob(named, choice)
    if isinstance(choice, re.Pattern):
        pattern = choice
        return _filter(default, pattern) or _filter(named, pattern)
    if isinstance(choice, type):
        return {n: m for n, m in named.items() if isinstance(m, choice)}
    if isinstance(choice, Iterable):
        return _by_list(named, list(choice))
    raise LayerError(f"layers={choice!r}: expected a glob, a compiled regular expression, names or module types")


def _by_glob(modules: dict[str, nn.Module], text: str) -> dict[str, nn.Module]:
    return {name: modules[name] for name in matching(modules, text)}


def _filter(modules: dict[str, nn.Module], pattern: re.Pattern[str]) -> dict[str, nn.Module]:
    return {n: m for n, m in modules.items() if pattern.fullmatch(n)}


def _by_list(named: dict[str, nn.Module], items: list[str | type[nn.Module]]) -> dict[str, nn.Module]:
    types = tuple(item for item in items if isinstance(item, type))
    names = [item for item in items if not isinstance(item, type)]
    for name in names:
        if name not in named:
            close = difflib.get_close_matches(str(name), named, n=3)
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are {_listing(named)}"
            raise LayerError(f"layers: the model has no module {name!r}; {hint}")
    return {n: m for n, m in named.items() if n in names or isinstance(m, types)}


def _describe(choice: object) -> str:
    return repr(choice.pattern) if isinstance(choice, re.Pattern) else repr(choice)


def _listing(modules: dict[str, nn.Module]) -> str:
    names = [repr(name) for name in modules][:_LISTED]
    more = len(modules) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "") if names else "no modules"
