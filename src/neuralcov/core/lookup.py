"""Find criteria by their names, those of installed packages too."""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning


def criterion_class(name: str) -> type[Criterion[Any]] | None:
    """Return the criterion of that name, in any case; bases that cannot be used themselves do not count.

    A name that nobody has imported may be that of an installed package, which offers its criteria under the entry point
    group ``neuralcov.criteria``.
    """
    if name.lower() not in Criterion.known:
        load_offered()
    cls = Criterion.known.get(name.lower())
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
