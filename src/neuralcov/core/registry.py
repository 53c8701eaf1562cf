"""The criteria that are known by their names, those that installed packages offer included."""

from __future__ import annotations

import inspect
import sys
import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from neuralcov.core.errors import CoverageWarning, HyperParameterError

if TYPE_CHECKING:
    from neuralcov.core.criterion import Criterion

KNOWN: dict[str, type[Criterion[Any]]] = {}


def register(cls: type[Criterion[Any]]) -> None:
    """Make a criterion known by its name, which no other may have: files and command lines go by it."""
    name = cls.__name__.lower()
    other = KNOWN.get(name)
    if other is not None and not _defined_again(cls, other):
        raise HyperParameterError(
            f"the class {cls.__module__}.{cls.__qualname__} has the name of the criterion {other.__module__}."
            f"{other.__qualname__} (upper and lower case count as one): give it another name, or one that begins with _"
        )
    KNOWN[name] = cls


def _defined_again(cls: type, other: type) -> bool:
    """Return whether one definition was run twice: in a reloaded module, a notebook, or a script imported as well."""
    if cls.__qualname__ != other.__qualname__:
        return False
    files = [getattr(sys.modules.get(each.__module__), "__file__", None) for each in (cls, other)]
    return cls.__module__ == other.__module__ or (files[0] is not None and files[0] == files[1])


def criterion_class(name: str) -> type[Criterion[Any]] | None:
    """Return the criterion of that name, in any case; bases that cannot be used themselves do not count.

    A name that nobody has imported may be that of an installed package, which offers its criteria under the entry point
    group ``neuralcov.criteria``.
    """
    if name.lower() not in KNOWN:
        load_offered()
    cls = KNOWN.get(name.lower())
    return None if cls is None or cls.is_base or inspect.isabstract(cls) else cls


@cache
def load_offered() -> None:
    """Import what installed packages offer under ``neuralcov.criteria``: criteria, their states and statistics."""
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


def criterion_stored_as(name: str) -> type[Criterion[Any]] | None:
    """Return the criterion that files call so, if it is imported or an installed package offers it."""
    cls = criterion_class(name.rpartition(".")[2])
    return cls if cls is not None and stored_class(cls) == name else None
