"""Find a criterion by its name, whether it was imported, or an installed package offers it."""

from __future__ import annotations

import inspect
from typing import Any

from neuralcov.core.criterion import Criterion
from neuralcov.core.registry import load_offered, load_own, stored_class


def criterion_class(name: str) -> type[Criterion[Any]] | None:
    """Return the criterion of that name, in any case; bases that cannot be used themselves do not count.

    A name that nobody has imported may be that of an installed package, which offers its criteria under the entry point
    group ``neuralcov.criteria``.
    """
    for load in (load_own, load_offered):
        if name.lower() not in Criterion.known:
            load()
    cls = Criterion.known.get(name.lower())
    return None if cls is None or cls.is_base or inspect.isabstract(cls) else cls


def criterion_stored_as(name: str) -> type[Criterion[Any]] | None:
    """Return the criterion that files call so, if it is imported or an installed package offers it."""
    cls = criterion_class(name.rpartition(".")[2])
    return cls if cls is not None and stored_class(cls) == name else None
