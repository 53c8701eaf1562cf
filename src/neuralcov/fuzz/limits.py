"""Say when a campaign stops, and when it shows progress, saves and reads off coverage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from neuralcov.core.errors import InputError
from neuralcov.fuzz.settings import is_number, is_whole

_TICK = 1.0
# Reading off coverage may take this share of the time; for some criteria it means factorising every layer.
_READING = 0.02


@dataclass(frozen=True)
class Limits:
    """Say when to stop, counted from the start of the campaign; whichever comes first."""

    iterations: int | None = None
    seconds: float | None = None
    faults: int | None = None
    until_new: float | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in asdict(self).values()):
            raise InputError("no limit: give iterations=, calls=, seconds=, faults= or until_new=")
        if self.until_new is not None and not (is_number(self.until_new) and 0 < self.until_new < 1):
            raise InputError(f"until_new={self.until_new!r}: expected a share above 0 and below 1, such as 0.001")
        for name, value in asdict(self).items():
            if value is None or name == "until_new":
                continue
            if name == "seconds" and not (is_number(value) and value >= 0):
                raise InputError(f"{name}={value!r}: expected a number of at least 0")
            if name != "seconds" and not is_whole(value, 0):
                raise InputError(f"{name}={value!r}: expected a whole number of at least 0")


class Timer:
    """Tell when to show progress, when to save, and how often to read off coverage.

    Args:
        checkpoint: seconds between saves.
    """

    def __init__(self, checkpoint: float) -> None:
        now = time.monotonic()
        self._checkpoint = checkpoint
        self._shown = self._saved = now
        self._known: dict[str, float] | None = None
        self._read_again = now

    def time_to_show(self) -> bool:
        """Return whether a second has passed since progress was shown."""
        now = time.monotonic()
        due = now - self._shown >= _TICK
        self._shown = now if due else self._shown
        return due

    def time_to_save(self) -> bool:
        """Return whether ``checkpoint`` seconds have passed since the last save."""
        now = time.monotonic()
        due = now - self._saved >= self._checkpoint
        self._saved = now if due else self._saved
        return due

    def values(self, read: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return coverage, read so seldom that reading takes a small share of the time."""
        started = time.monotonic()
        if self._known is None or started >= self._read_again:
            self._known = read()
            took = time.monotonic() - started
            self._read_again = time.monotonic() + took / _READING
        return self._known
