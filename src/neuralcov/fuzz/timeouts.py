"""A limit on the time a call may take, for models that may hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch


class TimeUp(Exception):
    """A call took longer than it was given."""


@contextmanager
def time_limit(seconds: float | None, device: torch.device) -> Iterator[None]:
    """Within: at most so many seconds, or :class:`TimeUp`.

    In the main thread of a Unix process a call is interrupted as soon as Python code runs in it. Elsewhere, and
    within one long operation of PyTorch, it is noticed at the end.
    """
    if seconds is None:
        yield
        return
    started = time.monotonic()
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    with _alarm(seconds) if alarmed else _nothing():
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    if time.monotonic() - started > seconds:
        raise TimeUp(f"took longer than {seconds:g} s")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeUp(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
