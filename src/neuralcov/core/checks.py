"""Checks of hyper-parameters, so that each criterion states its limits in one line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neuralcov.core.errors import HyperParameterError


def show(value: Any) -> str:
    """How a hyper-parameter reads in names and messages: ``0.75``, ``10``, ``label``."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        # Two different numbers never read the same: names tell criteria apart.
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, (list, tuple)):
        return "|".join(show(item) for item in value)
    return str(value)


def refuse(owner: object, field: str, rule: str) -> HyperParameterError:
    """The error for ``owner.field``, naming class, argument, value and rule."""
    value = getattr(owner, field)
    return HyperParameterError(f"{type(owner).__name__}({field}={value!r}): {field} must be {rule}")


def _plain(owner: object, field: str) -> Any:
    """The value; one of NumPy's is made a plain one in its place, so that names and files can hold it."""
    value = getattr(owner, field)
    if isinstance(value, np.generic):
        value = value.item()
        object.__setattr__(owner, field, value)
    return value


def whole_number(owner: object, field: str, *, at_least: int) -> None:
    """Require an integer of at least ``at_least``."""
    value = _plain(owner, field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(owner, field, f"a whole number of at least {at_least}")
    if value < at_least:
        raise refuse(owner, field, f"at least {at_least}")


def number(
    owner: object,
    field: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Require a finite number within the given bounds."""
    value = _plain(owner, field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise refuse(owner, field, "a finite number")
    if above is not None and not value > above:
        raise refuse(owner, field, f"above {above:g}")
    if at_least is not None and not value >= at_least:
        raise refuse(owner, field, f"at least {at_least:g}")
    if below is not None and not value < below:
        raise refuse(owner, field, f"below {below:g}")
    if at_most is not None and not value <= at_most:
        raise refuse(owner, field, f"at most {at_most:g}")


def one_of(owner: object, field: str, *choices: object) -> None:
    """Require one of a few values."""
    value = getattr(owner, field)
    # Compared with their types, so that True does not pass for 1.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise refuse(owner, field, "one of " + ", ".join(repr(choice) for choice in choices))


def flag(owner: object, field: str) -> None:
    """Require True or False."""
    one_of(owner, field, True, False)
