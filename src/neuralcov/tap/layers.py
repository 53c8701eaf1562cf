"""Which modules of a model are its layers."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from neuralcov.core.arguments import matches, split_globs, without_match
from neuralcov.core.counted import counted
from neuralcov.core.errors import CoverageWarning, LayerError
from neuralcov.tap.axes import is_layer_by_default, is_unreadable

LayerChoice: TypeAlias = "str | re.Pattern[str] | type[nn.Module] | Sequence[str | type[nn.Module]] | None"

RESIDUAL = "residual"
_COMPILED = "_orig_mod"
_LISTED = 40
# Modules that hold others and are never called themselves.
_NEVER_RUN = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return every module of a model by qualified name; the model itself goes by its class."""
    named = {}
    for name, module in model.named_modules():
        parts = [part for part in name.split(".") if part != _COMPILED]
        named[".".join(parts) or type(model).__name__] = module
    return named


def choose_layers(model: nn.Module, choice: LayerChoice = None) -> dict[str, nn.Module]:
    """Return the modules that count as layers, by qualified name.

    Args:
        model: any module.
        choice: ``None`` for all weighted layers; globs joined by ``|`` on the whole qualified name (``*``
            crosses dots, a part that starts with ``!`` takes away); ``"residual"`` for the output of every block of the
            model's longest ``ModuleList`` of modules of one class (of all lists as long); a compiled regular
            expression, matched against the whole name; a list of names; or module types. Every glob, and an
            expression, picks among the kinds that count by default and, if it matches none of these, among all modules.
            One that matches nothing is an error.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> list(choose_layers(net)), list(choose_layers(net, "2")), list(choose_layers(net, nn.ReLU))
    (['0', '2'], ['2'], ['1'])
    """
    modules = _Modules.of(model)
    chosen = _pick(modules, choice)
    if modules.hidden and choice is None:
        _say_hidden(modules.hidden, nothing_else=not chosen)
    if not chosen:
        wanted = "a layer with weights" if choice is None else f"layers={_describe(choice)}"
        listed = modules.default or modules.named
        raise LayerError(f"no module matches {wanted}; {type(model).__name__} has {_listing(listed)}")
    return {name: module for name, module in modules.named.items() if name in chosen}


def _inside_scripted(named: dict[str, nn.Module]) -> list[str]:
    """Return modules inside scripted or traced ones, which run as a whole without calling their parts."""
    whole = tuple(name for name, module in named.items() if isinstance(module, torch.jit.ScriptModule))
    if any(named[name] is next(iter(named.values())) for name in whole):
        return list(named)[1:]
    return [name for name in named if name.startswith(tuple(f"{outer}." for outer in whole))] if whole else []


def _say_hidden(hidden: list[str], *, nothing_else: bool) -> None:
    sentence = (
        f"{counted(len(hidden), 'layer')} cannot be measured, inside scripted, traced or exported "
        f"modules that run as a "
        f"whole: {', '.join(map(repr, hidden[:_LISTED]))}; measure the model before it became one"
    )
    if nothing_else:
        raise LayerError(sentence)
    warnings.warn(sentence, CoverageWarning, stacklevel=5)


@dataclass(frozen=True)
class _Modules:
    """The modules of a model by qualified name.

    Args:
        named: all of them.
        runnable: those that run as modules and so have an output.
        weighted: those of the kinds that count by default.
        default: those that count by default.
        hidden: layers that cannot be measured, inside scripted or traced modules.
    """

    named: dict[str, nn.Module]
    runnable: dict[str, nn.Module]
    weighted: dict[str, nn.Module]
    default: dict[str, nn.Module]
    hidden: list[str]

    @classmethod
    def of(cls, model: nn.Module) -> _Modules:
        named = named_layers(model)
        # The inner projection of an attention module is a Linear that never runs as a module.
        inner = {f"{name}.out_proj" for name, module in named.items() if isinstance(module, nn.MultiheadAttention)}
        scripted = set(_inside_scripted(named))
        inner |= scripted
        inner |= {name for name, module in named.items() if is_unreadable(module)}
        runnable = {n: m for n, m in named.items() if n not in inner and not isinstance(m, _NEVER_RUN)}
        weighted = {n: m for n, m in named.items() if is_layer_by_default(m)}
        outputs = _output_embeddings(model)
        default = {n: m for n, m in weighted.items() if n in runnable and id(m) not in outputs}
        hidden = [n for n, m in named.items() if (n in scripted and is_layer_by_default(m)) or is_unreadable(m)]
        return cls(named, runnable, weighted, default, hidden)


def _output_embeddings(model: nn.Module) -> set[int]:
    """Return the layers that turn the features of transformers' language models into scores of words."""
    found = set()
    for module in model.modules():
        method = getattr(module, "get_output_embeddings", None)
        if callable(method):
            try:
                found.add(id(method()))
            except NotImplementedError:
                continue
    return found


def _pick(modules: _Modules, choice: LayerChoice) -> Collection[str]:
    if choice is None:
        return modules.default
    if choice == RESIDUAL and RESIDUAL not in modules.named:
        return _blocks(modules)
    if isinstance(choice, str):
        return _by_globs(modules, choice)
    if isinstance(choice, re.Pattern):
        pattern = choice
        return _filter(modules.default, pattern) or _filter(modules.runnable, pattern)
    if isinstance(choice, type):
        return {n for n, m in modules.runnable.items() if isinstance(m, choice)}
    if isinstance(choice, Iterable):
        return _by_list(modules, list(choice))
    raise LayerError(f"layers={choice!r}: expected a glob, a compiled regular expression, names or module types")


def _blocks(modules: _Modules) -> set[str]:
    """Return the blocks that a model repeats most often, whose outputs are what runs along the residual stream."""
    lists = {
        name: list(module)
        for name, module in modules.named.items()
        if isinstance(module, nn.ModuleList) and len(module) > 1 and len(set(map(type, module))) == 1
    }
    most = max(map(len, lists.values()), default=0)
    if not most:
        raise LayerError(
            "layers='residual': the model has no ModuleList of several modules of one class; name its blocks"
        )
    names = {id(module): name for name, module in modules.runnable.items()}
    return {names[id(block)] for blocks in lists.values() if len(blocks) == most for block in blocks}


def _by_globs(modules: _Modules, text: str) -> set[str]:
    """Return the layers that each glob picks on its own, less those left out."""
    wanted, unwanted = split_globs(text)
    for part in without_match(modules.named, text):
        where = f"layers={text!r}" if part == text else f"{part!r} of layers={text!r}"
        raise LayerError(f"no module matches {where}; {_hint(part.lstrip('!'), modules)}")
    chosen: set[str] = set()
    for glob in wanted:
        found = _matching(modules.default, glob) or _matching(modules.runnable, glob)
        if not found:
            raise LayerError(_cannot_run(modules, glob, f"{glob!r} of layers={text!r}"))
        chosen |= found
    for glob in unwanted:
        taken = _matching(modules.named, glob)
        if not taken & (chosen | modules.weighted.keys()):
            name = min(taken)
            inside = any(layer.startswith(f"{name}.") for layer in modules.weighted)
            advice = f"write '!{name}.*' to leave out the layers within" if inside else "leave that part out"
            raise LayerError(
                f"'!{glob}' of layers={text!r} leaves nothing out: {name!r} is no layer of its own; {advice}"
            )
        chosen -= taken
    return chosen


def _matching(modules: Iterable[str], glob: str) -> set[str]:
    return {name for name in modules if matches(name, [glob])}


def _filter(modules: dict[str, nn.Module], pattern: re.Pattern[str]) -> set[str]:
    return {name for name in modules if pattern.fullmatch(name)}


def _by_list(modules: _Modules, items: list[str | type[nn.Module]]) -> set[str]:
    types = tuple(item for item in items if isinstance(item, type))
    names = [item for item in items if not isinstance(item, type)]
    for name in names:
        if name not in modules.named:
            raise LayerError(f"layers: the model has no module {name!r}; {_hint(str(name), modules)}")
        if name not in modules.runnable:
            raise LayerError(_cannot_run(modules, name, f"{name!r} of layers="))
    return {n for n, m in modules.runnable.items() if n in names or isinstance(m, types)}


def _cannot_run(modules: _Modules, glob: str, where: str) -> str:
    name = min(_matching(modules.named, glob))
    kind = type(modules.named[name]).__name__
    if isinstance(modules.named[name], _NEVER_RUN):
        return f"{where} matches {name!r}, a {kind}, which never runs itself: write '{name}.*' for what it holds"
    return f"{where} matches {name!r}, a {kind} that never runs as a module: name the module around it"


def _hint(name: str, modules: _Modules) -> str:
    close = difflib.get_close_matches(name, modules.named, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"the model has {_listing(modules.default or modules.named)}"


def _describe(choice: object) -> str:
    return repr(choice.pattern) if isinstance(choice, re.Pattern) else repr(choice)


def _listing(modules: dict[str, nn.Module]) -> str:
    names = [repr(name) for name in modules][:_LISTED]
    more = len(modules) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "") if names else "no modules"


def module_name(layer: str) -> str:
    """Return the module behind a layer: ``fc`` for its second call, ``fc#1``, or ``rnn`` for a step, ``rnn[3]``."""
    return layer.partition("#")[0].partition("[")[0]
