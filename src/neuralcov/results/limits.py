"""What is asked of figures, as people write it: ``NAME=NUMBER``, and reasons why an alarm may stand."""

from __future__ import annotations

from collections.abc import Sequence

from neuralcov.core.errors import InputError
from neuralcov.results.sanity import ALARMS


def thresholds(texts: Sequence[str], option: str) -> dict[str, float]:
    """Read ``NAME=NUMBER``; a number may be in per cent.

    >>> thresholds(["LCC.relative=0.9", "LSC(10, by=label)=5%"], "--min")
    {'LCC.relative': 0.9, 'LSC(10, by=label)': 0.05}
    """
    found = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} {text!r}: expected NAME=NUMBER, such as LCC.relative=0.9")
        found[name.strip()] = read_number(number, f"{option} {text!r}")
    return found


def reasons(texts: Sequence[str], option: str = "--allow-alarm") -> dict[str, str]:
    """Read ``NAME=reason``; without a reason no alarm is allowed."""
    found = {}
    for text in texts:
        name, _, reason = text.partition("=")
        if not reason.strip():
            raise InputError(f"{option} {text!r}: expected a reason as well, such as 'classes=a smoke test'")
        if name.strip() not in ALARMS:
            raise InputError(f"{option} {text!r}: no alarm is called {name.strip()!r}; there are {', '.join(ALARMS)}")
        found[name.strip()] = reason.strip()
    return found


def read_number(text: str, where: str) -> float:
    """Read a number, or one in per cent."""
    plain = text.strip()
    try:
        number = float(plain.removesuffix("%"))
    except ValueError as error:
        raise InputError(f"{where}: {plain!r} is no number, such as 0.9 or 5%") from error
    return number / 100 if plain.endswith("%") else number
