"""When a campaign ends, and when it shows, saves and reads off coverage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from neuralcov.core.errors import InputError

_TICK = 1.0
# Reading off coverage may take this share of the time; for some criteria it means factorising every layer.
_READING = 0.02


@dataclass(frozen=True)
class Limits:
    """When to stop, counted from the start of the campaign; whichever comes first."""

    iterations: int | None = None
    seconds: float | None = None
    faults: int | None = None

    def __post_init__(self) -> None:
        if self.iterations is None and self.seconds is None and self.faults is None:
            raise InputError("no limit: give iterations=, seconds= or faults=")
        for name, value in asdict(self).items():
            kinds = (int, float) if name == "seconds" else int
            if value is not None and not (isinstance(value, kinds) and not isinstance(value, bool) and value >= 0):
                raise InputError(
                    f"{name}={value!r}: expected a {'' if name == 'seconds' else 'whole '}number of at least 0"
                )


class Timer:
    """When to show how things stand, when to save, and how often to read off coverage."""

    def __init__(self, checkpoint: float) -> None:
        now = time.monotonic()
        self._checkpoint = checkpoint
        self._shown = self._saved = now
        self._known: dict[str, float] | None = None
        self._read_again = now

    def time_to_show(self) -> bool:
        """Every second."""
        return self._due("_shown", _TICK)

    def time_to_save(self) -> bool:
        """Every so many seconds as the user said."""
        return self._due("_saved", self._checkpoint)

    def values(self, read: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Coverage, read off so seldom that reading takes a small share of the time."""
        started = time.monotonic()
        if self._known is None or started >= self._read_again:
            self._known = read()
            took = time.monotonic() - started
            self._read_again = time.monotonic() + took / _READING
        return self._known

    def _due(self, what: str, period: float) -> bool:
        now = time.monotonic()
        if now - getattr(self, what) < period:
            return False
        setattr(self, what, now)
        return True
