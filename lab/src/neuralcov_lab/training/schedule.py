"""Tell how far a training has come, by its steps or by the minutes it was given, and which learning rate follows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field


@dataclass
class Schedule:
    """Measure progress from 0 to 1.

    With a limit of minutes the schedule runs by whichever is further on, so that training always ends with small
    learning rates, in time, on a machine of any speed.

    Args:
        steps: in all.
        seconds: the limit, or ``None``.
        done: steps made, in an earlier run too.
        spent: seconds spent in earlier runs.
    """

    steps: int
    seconds: float | None = None
    done: int = 0
    spent: float = 0.0
    _started: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds spent, in earlier runs too."""
        return self.spent + time.perf_counter() - self._started

    @property
    def progress(self) -> float:
        """The share of training that is behind."""
        by_steps = self.done / max(self.steps, 1)
        return min(by_steps if self.seconds is None else max(by_steps, self.elapsed / self.seconds), 1.0)


def one_cycle(progress: float, warm_up: float) -> float:
    """Return the share of the highest learning rate: a straight rise, then half a cosine to 0 (Smith and Topin, 2018).

    >>> [round(one_cycle(p, 0.25), 3) for p in (0, 0.25, 0.625, 1)]
    [0.02, 1.0, 0.5, 0.0]
    """
    if progress < warm_up:
        return 0.02 + 0.98 * progress / warm_up
    return 0.5 + 0.5 * math.cos(math.pi * (progress - warm_up) / (1 - warm_up))


def plateau(progress: float, warm_up: float, hold: float = 0.75) -> float:
    """Return a short rise, a plateau, then straight to 0: adversaries stop improving once their rate is low.

    >>> [plateau(p, 0.01) for p in (0.25, 0.75, 0.875, 1)]
    [1.0, 1.0, 0.5, 0.0]
    """
    return min(1.0, (progress + 1e-3) / max(warm_up, 1e-3), (1 - progress) / (1 - hold))
