"""Sources that packages offer by entry points: ``zoo:`` comes from neuralcov-lab, ``demo:`` from this package."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples

GROUP = "neuralcov.sources"
# Whose prefix it is, so that a person without the package reads what to install.
_PACKAGES = {"zoo": "neuralcov-lab"}


class Source(Protocol):
    """Models and data of one prefix. A package offers one under the entry point group ``neuralcov.sources``."""

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
