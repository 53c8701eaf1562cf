"""Checks of hyper-parameters, so that each criterion states its limits in one line."""

from __future__ import annotations

import fnmatch
import importlib
import re
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.errors import HyperParameterError, InputError, MissingExtraError
from neuralcov.core.shapes import Bool


def format_value(value: Any) -> str:
    """Format a hyper-parameter for names and messages: ``0.75``, ``10``, ``label``."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        # Two different numbers never read the same: names tell criteria apart.
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, (list, tuple)):
        return "|".join(format_value(item) for item in value)
    return str(value)


def plain_key(name: str) -> str:
    """Return the name of a criterion in letters, digits, ``_``, ``.`` and ``-``, with its class in small letters.

    >>> plain_key("NC(0.75)"), plain_key("LSC(10, by=label)"), plain_key("NLC")
    ('nc_0.75', 'lsc_10_by_label', 'nlc')
    """
    head, opened, rest = name.partition("(")
    return re.sub(r"[^0-9A-Za-z.-]+", "_", head.lower() + opened + rest).strip("_")


def argument_error(owner: object, field: str, rule: str) -> HyperParameterError:
    """Return the error for ``owner.field``, which names class, argument, value and rule."""
    value = getattr(owner, field)
    return HyperParameterError(f"{type(owner).__name__}({field}={value!r}): {field} must be {rule}")


def _plain(owner: object, field: str) -> Any:
    """Return the value; replace one of NumPy's by a plain one, so that names and files can hold it."""
    value = getattr(owner, field)
    if isinstance(value, np.generic):
        value = value.item()
        object.__setattr__(owner, field, value)
    return value


def whole_number(owner: object, field: str, *, at_least: int) -> None:
    """Require an integer of at least ``at_least``."""
    value = _plain(owner, field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise argument_error(owner, field, f"a whole number of at least {at_least}")
    if value < at_least:
        raise argument_error(owner, field, f"at least {at_least}")


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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        raise argument_error(owner, field, "a finite number")
    if above is not None and not value > above:
        raise argument_error(owner, field, f"above {above:g}")
    if at_least is not None and not value >= at_least:
        raise argument_error(owner, field, f"at least {at_least:g}")
    if below is not None and not value < below:
        raise argument_error(owner, field, f"below {below:g}")
    if at_most is not None and not value <= at_most:
        raise argument_error(owner, field, f"at most {at_most:g}")


def one_of(owner: object, field: str, *choices: object) -> None:
    """Require one of a few values."""
    value = getattr(owner, field)
    # Compared with their types, so that True does not pass for 1.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise argument_error(owner, field, "one of " + ", ".join(repr(choice) for choice in choices))


def flag(owner: object, field: str) -> None:
    """Require True or False."""
    one_of(owner, field, True, False)


def usable_device(device: torch.device | str) -> torch.device:
    """Return the device, or refuse it in one sentence on why it cannot be used."""
    try:
        chosen = torch.device(device)
        if chosen.type == "meta":
            raise TypeError("it holds no numbers")
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, TypeError) as error:
        first = next(iter(str(error).splitlines()), "")
        raise InputError(f"device {str(device)!r} cannot be used here: {first}") from error
    return chosen


def require(module: str, what: str, *, extra: str | None = None) -> Any:
    """Import a module of an optional package, or say what needs it and how to get it.

    Args:
        module: the module, such as ``kornia.augmentation``.
        what: what needs it, in the plural, such as ``attacks``.
        extra: the extra of neuralcov that brings it; by default the package is installed by itself.

    >>> require("no_such_package.part", "rare things", extra="rare")
    Traceback (most recent call last):
    neuralcov.core.errors.MissingExtraError: rare things need no_such_package: pip install 'neuralcov[rare]'
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        target = package if extra is None else f"'neuralcov[{extra}]'"
        raise MissingExtraError(f"{what} need {package}: pip install {target}") from error


class Glance:
    """Look at a flag on a device, for work that may be skipped if the flag is known to be down.

    On a GPU the flag is sent to the host and read only if it has arrived; nobody waits for it.
    """

    def __init__(self, flag: Bool[Tensor, ""]) -> None:
        self._flag = flag
        self._arrived: Any = None
        if flag.is_cuda:
            self._flag = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(flag, non_blocking=True)
            self._arrived = torch.cuda.current_stream(flag.device).record_event()

    def surely_down(self) -> bool:
        """Say whether the flag is known to be down."""
        if self._flag.device.type != "cpu" or (self._arrived is not None and not self._arrived.query()):
            return False
        return not bool(self._flag)


def match_globs(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that match one of the globs joined by ``|`` as a whole, and none that starts with ``!``.

    >>> match_globs(["conv1", "conv2", "fc"], "conv*|!conv2"), match_globs(["conv1", "fc"], "!fc")
    (['conv1'], ['conv1'])
    """
    wanted, unwanted = split_globs(pattern)
    return [name for name in names if matches(name, wanted) and not matches(name, unwanted)]


def split_globs(pattern: str) -> tuple[list[str], list[str]]:
    """Return the globs to take, ``*`` where there are none, and those to leave out, without their ``!``.

    >>> split_globs("conv*|!conv2"), split_globs("!fc")
    ((['conv*'], ['conv2']), (['*'], ['fc']))
    """
    parts = [part.strip() for part in pattern.split("|") if part.strip()]
    wanted = [part for part in parts if not part.startswith("!")] or ["*"]
    return wanted, [part[1:].strip() for part in parts if part.startswith("!")]


def matches(name: str, globs: Iterable[str]) -> bool:
    """Return whether a name matches one of the globs as a whole."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def without_match(names: Iterable[str], pattern: str) -> list[str]:
    """Return the parts of a pattern that match no name, as they are written.

    >>> without_match(["conv1", "fc"], "conv*|head|!fcc")
    ['head', '!fcc']
    """
    known = list(names)
    wanted, unwanted = split_globs(pattern)
    parts = [(glob, glob) for glob in wanted] + [(f"!{glob}", glob) for glob in unwanted]
    return [part for part, glob in parts if not any(fnmatch.fnmatchcase(name, glob) for name in known)]


def with_tuples(value: Any) -> Any:
    """Turn lists of a file into tuples: JSON has no tuples, hyper-parameters have no lists.

    >>> with_tuples(["a", [1, 2]])
    ('a', (1, 2))
    """
    return tuple(with_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
