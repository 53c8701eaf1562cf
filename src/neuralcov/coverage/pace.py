"""Whether recording helps: only where the device waits for Python, and a replay is faster than plain calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self, TypeVar

import torch

T = TypeVar("T")

# A device that ends so much later than the host has done with starting its work is busy enough.
_LATE = 0.25
# A first replay within this share of the time of plain calls is faster; a later one must be within that.
_CLEARLY, _FASTER = 0.8, 0.95


class Pace:
    """Time one batch, a block of code, on the host and on the device, without waiting for the latter.

    Args:
        device: where the work goes; one without a clock of its own is never late.
    """

    def __init__(self, device: torch.device) -> None:
        self._events: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        if device.type == "cuda":
            self._events = (_event(), _event())
        self._host = 0.0

    def __enter__(self) -> Self:
        if self._events is not None:
            self._events[0].record()
        self._host = -time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self._host += time.perf_counter()
        if self._events is not None:
            self._events[1].record()

    def lag(self) -> str | None:
        """Return in words that the device is the limit, or ``None``; waits until it has done that batch."""
        if self._events is None:
            return None
        begin, end = self._events
        start = time.perf_counter()
        end.synchronize()
        waited, device = time.perf_counter() - start, begin.elapsed_time(end) / 1000
        late = max(waited, device - self._host)
        if late <= _LATE * self._host:
            return None
        return (
            f"the device is busy all the time, and recording would save nothing: {1000 * device:.1f} ms a batch, which "
            f"Python starts in {1000 * self._host:.1f} ms"
        )


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def timed(device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    """Do some work; return what it gives and the seconds it took, waiting for the device before and after."""
    wait = torch.cuda.synchronize if device.type == "cuda" else _no_wait
    wait(device)
    start = time.perf_counter()
    found = work()
    wait(device)
    return found, time.perf_counter() - start


def _no_wait(device: torch.device) -> None:
    """Do nothing: what a CPU was asked for is done."""


def no_faster(again: Callable[[], float], replayed: float, plainly: float) -> str | None:
    """Return in words that a replay is no faster than plain calls, as where a library computes otherwise in it.

    Args:
        again: replays once more and tells the seconds, since a first replay also brings the recording to the device.
        replayed: seconds of the first replay.
        plainly: seconds of plain calls of the same batch.
    """
    if replayed > _CLEARLY * plainly:
        replayed = again()
    if replayed <= _FASTER * plainly:
        return None
    took = f"a replay takes {1000 * replayed:.1f} ms, plain calls {1000 * plainly:.1f} ms"
    return f"recording would save nothing: {took}"
