"""What the zoo holds, by the names commands use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.zoo.digits import DigitsNet, digits
from neuralcov.zoo.samples import Samples

NETWORKS: dict[str, Callable[..., nn.Module]] = {"digits": DigitsNet}
DATA: dict[str, Callable[[str], Samples]] = {"digits": digits}


def build(name: str, **arguments: Any) -> nn.Module:
    """A network of the zoo, with fresh weights.

    >>> type(build("digits")).__name__
    'DigitsNet'
    """
    if name not in NETWORKS:
        raise InputError(f"the zoo has no network {name!r}: there are {', '.join(NETWORKS)}")
    try:
        return NETWORKS[name](**arguments)
    except TypeError as error:
        raise InputError(f"zoo network {name!r}: {error}") from error


def data(name: str, split: str = "test") -> Samples:
    """A split of a data set of the zoo."""
    if name not in DATA:
        raise InputError(f"the zoo has no data {name!r}: there are {', '.join(DATA)}")
    return DATA[name](split)
