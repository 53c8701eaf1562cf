"""Criteria are known by their names: no two have the same, and installed packages may offer some."""

from __future__ import annotations

import importlib
import sys
import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from neuralcov.core.errors import CoverageWarning, HyperParameterError

if TYPE_CHECKING:
    from neuralcov.core.criterion import Criterion


def register(cls: type[Criterion[Any]]) -> None:
    """Make a criterion known by its name, which no other may have: files and command lines go by it."""
    name = cls.__name__.lower()
    other = cls.known.get(name)
    if other is not None and not _defined_again(cls, other):
        raise HyperParameterError(
            f"the class {cls.__module__}.{cls.__qualname__} has the name of the criterion {other.__module__}."
            f"{other.__qualname__} (upper and lower case count as one): give it another name, or one that begins with _"
        )
    cls.known[name] = cls


def _defined_again(cls: type, other: type) -> bool:
    """Return whether one definition was run twice: in a reloaded module, a notebook, or a script imported as well."""
    if cls.__qualname__ != other.__qualname__:
        return False
    files = [getattr(sys.modules.get(each.__module__), "__file__", None) for each in (cls, other)]
    return cls.__module__ == other.__module__ or (files[0] is not None and files[0] == files[1])


@cache
def load_own() -> None:
    """Import the criteria of this package, by name like those of others: nobody else may have imported them yet."""
    importlib.import_module("neuralcov.criteria")


@cache
def load_offered() -> None:
    """Import what installed packages offer under ``neuralcov.criteria``: criteria, their states and statistics."""
    load_own()
    for entry in entry_points(group="neuralcov.criteria"):
        try:
            entry.load()
        except Exception as error:
            said = f"the criterion {entry.value} of an installed package cannot be imported ({error!r})"
            warnings.warn(said, CoverageWarning, stacklevel=3)


def stored_class(cls: type[Criterion[Any]]) -> str:
    """Return the name of a criterion in files: its class's, of other packages with a prefix, ``acme.Rarity``."""
    package = cls.__module__.partition(".")[0]
    return cls.__name__ if package == __name__.partition(".")[0] else f"{package}.{cls.__name__}"
