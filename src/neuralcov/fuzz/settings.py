"""Settings of a campaign, declared once: for the class, the campaign's folder and the command; limits and timing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from neuralcov.core.errors import InputError

T = TypeVar("T")

_TICK = 1.0
# Reading off coverage may take this share of the time; for some criteria it means factorising every layer.
_READING = 0.02


_LARGEST_WAVE = 1_000_000


@dataclass(frozen=True)
class Schedule:
    """Say how often each seed is chosen.

    Args:
        kind: ``"uniform"``, or ``"fresh"``, DeepHunter's: the chance of a seed is proportional to
            ``max(1 − picks/gamma, floor)`` where ``picks`` counts the mutants of it that were kept.
        gamma: after how many picks a seed has only the floor left.
        floor: the least weight.
    """

    kind: str = "uniform"
    gamma: float = 5.0
    floor: float = 0.01

    def __post_init__(self) -> None:
        if self.kind not in ("uniform", "fresh"):
            raise InputError(f"schedule={self.kind!r}: expected 'uniform' or 'fresh'")
        if self.gamma <= 0 or not 0 < self.floor <= 1:
            raise InputError(f"gamma={self.gamma}, floor={self.floor}: expected gamma above 0 and a floor in (0, 1]")

    @classmethod
    def of(cls, schedule: str | Schedule) -> Schedule:
        """Return the schedule of a name; a schedule as it is."""
        return schedule if isinstance(schedule, Schedule) else cls(schedule)

    def weights(self, picks: np.ndarray) -> np.ndarray:
        """Return the weight of each seed.

        >>> Schedule("fresh").weights(np.array([0, 1, 4, 9])).round(2).tolist()
        [1.0, 0.8, 0.2, 0.01]
        """
        if self.kind == "uniform":
            return np.ones(len(picks))
        return np.asarray(np.maximum(1 - picks / self.gamma, self.floor))

    def sample(self, picks: np.ndarray, can_be_seed: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Draw one seed per chance in [0, 1), of those that can be seeds."""
        seeds = np.flatnonzero(can_be_seed)
        if self.kind == "uniform":
            return np.asarray(seeds[np.minimum((chances * len(seeds)).astype(np.int64), len(seeds) - 1)])
        upto = np.cumsum(self.weights(picks[seeds]))
        found = np.searchsorted(upto, chances * upto[-1], side="right")
        return np.asarray(seeds[np.minimum(found, len(seeds) - 1)])


@dataclass(frozen=True)
class _Rule:
    """Say which values a setting may have, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Files hold tries in 16 bits.
_MOST_TRIES = int(np.iinfo(np.int16).max)

_COUNT = _Rule("a whole number of at least 1", lambda value: _whole(value, 1))
_TRIES = _Rule(f"a whole number from 1 to {_MOST_TRIES}", lambda value: _whole(value, 1, _MOST_TRIES))
_SEED = _Rule("a whole number from 0 to 2**63 - 1", lambda value: _whole(value, 0, 2**63 - 1))
_AT_LEAST_0 = _Rule("a number of at least 0", lambda value: _number(value) and value >= 0)
_SHARE = _Rule("a share from 0 to 1", lambda value: _number(value) and 0 <= value <= 1)
_TIME = _Rule("a number above 0, or None", lambda value: value is None or (_number(value) and value > 0))
_PICTURES = _Rule("a whole number of at least 0, or None for all", lambda value: value is None or _whole(value, 0))
GUIDES = ("coverage", "random", "margin", "elites", "margin+coverage", "elites+coverage")
_GUIDE = _Rule(f"one of {', '.join(GUIDES)}", lambda value: value in GUIDES)
_CHOICE = _Rule("'uniform' or 'bandit'", lambda value: value in ("uniform", "bandit"))
_FLAG = _Rule("True or False", lambda value: isinstance(value, bool))
_SCHEDULE = _Rule("'uniform', 'fresh' or a Schedule", lambda value: isinstance(value, (str, Schedule)))


def _setting(default: T, rule: _Rule, help: str, *, may_change: bool = False, option: Any = None) -> T:
    """Declare a setting.

    Args:
        default: its value where nobody says otherwise.
        rule: the values it may have.
        help: what it is, as the command's ``--help`` says it.
        may_change: whether a campaign may go on with another value.
        option: the type of the command's option, where that is not the field's.
    """
    metadata = {"rule": rule, "help": help, "may_change": may_change, "option": option}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class FuzzSettings:
    """Say how a campaign searches. Fields are arguments of ``Fuzzer`` and options of ``neuralcov fuzz run`` too.

    A campaign's folder keeps them; it goes on only with the same ones, but for ``checkpoint`` and ``pictures``.

    >>> FuzzSettings(wave=0)
    Traceback (most recent call last):
    neuralcov.core.errors.InputError: wave=0: expected a whole number of at least 1
    """

    guide: str = _setting(
        "coverage",
        _GUIDE,
        "What is kept: mutants that raise coverage; random: all, unchecked; margin: those nearer to being misread; "
        "elites: the nearest for each pair of classes; or either of these, +coverage.",
    )
    mutation_choice: str = _setting(
        "uniform", _CHOICE, "uniform, or bandit: rather mutations that brought faults and took margin."
    )
    check_random: bool = _setting(False, _FLAG, "Check validity under guide random too.")
    max_per_group: int = _setting(3, _COUNT, "Examples saved of a fault: same seed, same wrong class, same error.")
    wave: int = _setting(
        256,
        _COUNT,
        "Parents that advance together; 64 to 256 suit a CPU, 1,000 to 4,000 a GPU; 1 is the plain algorithm.",
    )
    tries: int = _setting(50, _TRIES, "Mutants of a parent before it is given up.")
    rounds: int = _setting(8, _COUNT, "Of these, mutants within one wave, while none is acceptable.")
    batch: int = _setting(1000, _COUNT, "The most inputs per forward pass; seeds are observed in such batches too.")
    seed: int = _setting(0, _SEED, "Seed of all random choices.")
    min_gain: float = _setting(0.0, _AT_LEAST_0, "What the gain of some criterion must exceed.")
    schedule: str | Schedule = _setting(  # noqa: RUF009 - a field, not a Schedule
        "uniform", _SCHEDULE, "uniform, or fresh: rather seeds that have brought little.", option=str
    )
    alpha: float = _setting(0.2, _SHARE, "Acceptable if fewer positions (of texts: words) changed than this share,")
    beta: float = _setting(0.4, _SHARE, "or if no position changed by this share of the range.")
    time_limit: float | None = _setting(None, _TIME, "Seconds the model may take for a batch.")
    checkpoint: float = _setting(60.0, _AT_LEAST_0, "Seconds between saves of the coverage state.", may_change=True)
    pictures: int | None = _setting(
        20, _PICTURES, "Faults of a group that get pictures; export gives all.", may_change=True
    )

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.generic):
                value = value.item()  # files hold plain numbers
            if not entry.metadata["rule"].holds(value):
                raise InputError(f"{entry.name}={value!r}: expected {entry.metadata['rule'].words}")
            object.__setattr__(self, entry.name, value)
        if self.wave > _LARGEST_WAVE:
            raise InputError(f"wave={self.wave}: expected at most {_LARGEST_WAVE:,}, which are under way at once")
        object.__setattr__(self, "schedule", Schedule.of(self.schedule))

    @property
    def random(self) -> bool:
        """Return whether this is the baseline, which accepts whatever the model gives numbers for."""
        return self.guide == "random"

    @property
    def checks_validity(self) -> bool:
        """Return whether mutants must be acceptable; the baseline of the paper takes all."""
        return not self.random or self.check_random

    @property
    def uses_coverage(self) -> bool:
        """Return whether coverage takes part in the search."""
        return "coverage" in self.guide

    @property
    def uses_margin(self) -> bool:
        """Return whether somebody wants to know how near inputs are to being misread."""
        return self.guide not in ("coverage", "random") or self.mutation_choice == "bandit"

    def changed(self, **changes: Any) -> FuzzSettings:
        """Return the settings with some of them changed.

        >>> FuzzSettings(wave=8).changed(tries=5).wave
        8
        """
        names = [entry.name for entry in fields(self)]
        for name in changes:
            if name not in names:
                raise TypeError(f"there is no argument or setting {name!r}; settings are {', '.join(names)}")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> FuzzSettings:
        """Return the settings that a folder keeps; those it lacks have their defaults."""
        known = _with_names_of_today(stored)
        if isinstance(known.get("schedule"), Mapping):
            known["schedule"] = Schedule(**known["schedule"])
        return cls().changed(**known)

    def first_difference(self, stored: Mapping[str, Any]) -> str | None:
        """Return the first setting that a folder keeps with another value and that may not change."""
        mine, stored = self.to_json(), _with_names_of_today(stored)
        for entry in fields(self):
            name = entry.name
            if not entry.metadata["may_change"] and name in stored and stored[name] != mine[name]:
                return name
        return None


def _with_names_of_today(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a folder; the first campaigns said ``guidance`` where it is ``guide`` now."""
    known = dict(stored)
    if "guidance" in known:
        known["guide"] = known.pop("guidance")
    return known


@dataclass(frozen=True)
class Limits:
    """Say when to stop, counted from the start of the campaign; whichever comes first."""

    iterations: int | None = None
    seconds: float | None = None
    faults: int | None = None
    until_new: float | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in asdict(self).values()):
            raise InputError("no limit: give iterations=, seconds=, faults= or until_new=")
        if self.until_new is not None and not (_number(self.until_new) and 0 < self.until_new < 1):
            raise InputError(f"until_new={self.until_new!r}: expected a share above 0 and below 1, such as 0.001")
        for name, value in asdict(self).items():
            if value is None or name == "until_new":
                continue
            if name == "seconds" and not (_number(value) and value >= 0):
                raise InputError(f"{name}={value!r}: expected a number of at least 0")
            if name != "seconds" and not _whole(value, 0):
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
