"""Settings of a campaign, declared once: for the class, the campaign's folder and the command."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from neuralcov.core.errors import InputError
from neuralcov.fuzz.campaign.log import MOST_STACKED
from neuralcov.fuzz.schedule import Schedule

T = TypeVar("T")

_LARGEST_WAVE = 1_000_000


@dataclass(frozen=True)
class _Rule:
    """Say which values a setting may have, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


def is_whole(value: Any, least: int, most: float = math.inf) -> bool:
    """Return whether a value is a whole number within limits."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# Files hold tries in 16 bits.
_MOST_TRIES = int(np.iinfo(np.int16).max)

_COUNT = _Rule("a whole number of at least 1", lambda value: is_whole(value, 1))
_TRIES = _Rule(f"a whole number from 1 to {_MOST_TRIES}", lambda value: is_whole(value, 1, _MOST_TRIES))
_SEED = _Rule("a whole number from 0 to 2**63 - 1", lambda value: is_whole(value, 0, 2**63 - 1))
_AT_LEAST_0 = _Rule("a number of at least 0", lambda value: is_number(value) and value >= 0)
_SHARE = _Rule("a share from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
_TIME = _Rule("a number above 0, or None", lambda value: value is None or (is_number(value) and value > 0))
_PICTURES = _Rule("a whole number of at least 0, or None for all", lambda value: value is None or is_whole(value, 0))
GUIDES = ("coverage", "random", "margin", "elites", "margin+coverage", "elites+coverage")
_GUIDE = _Rule(f"one of {', '.join(GUIDES)}", lambda value: value in GUIDES)
_STACK = _Rule(f"a whole number from 1 to {MOST_STACKED}", lambda value: is_whole(value, 1, MOST_STACKED))
_FLAG = _Rule("True or False", lambda value: isinstance(value, bool))
_SCHEDULE = _Rule("'uniform', 'fresh', 'picked' or a Schedule", lambda value: isinstance(value, (str, Schedule)))


def _one_of(*words: str) -> _Rule:
    told = [repr(word) for word in words]
    return _Rule(" or ".join([", ".join(told[:-1]), told[-1]]), lambda value: value in words)


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
        "margin+coverage",
        _GUIDE,
        "What is kept: coverage: mutants that raise it; random: all, unchecked; margin: those nearer to being misread; "
        "elites: the nearest for each pair of classes; or either of these, +coverage.",
    )
    mutation_choice: str = _setting(
        "auto",
        _one_of("auto", "uniform", "bandit", "forecast", "settings"),
        "auto: forecast for margin and elites, else uniform; uniform: a mutation first, then a form; settings: one "
        "list of all forms, so that mutations with many come up more; bandit: rather what brought faults and took "
        "margin; forecast: for every input, the forms that just about suffice.",
    )
    stack: int = _setting(1, _STACK, "The most mutations that make one mutant, drawn from 1 to this.")
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
        "uniform",
        _SCHEDULE,
        "uniform; fresh: rather seeds that have brought little; picked: rather seeds that were seldom picked.",
        option=str,
    )
    alpha: float = _setting(0.2, _SHARE, "Acceptable if fewer positions (of texts: words) changed than this share,")
    beta: float = _setting(0.4, _SHARE, "or if no position changed by this share of the range.")
    counted: str = _setting(
        "positions",
        _one_of("positions", "values"),
        "What alpha is a share of: positions, changed if any channel is; or values, each channel by itself.",
    )
    compared: str = _setting(
        "moved",
        _one_of("moved", "root", "parent"),
        "What mutants are compared with: the root input moved as they were; as it is; or the parent.",
    )
    move_once: bool = _setting(True, _FLAG, "At most one geometric mutation in a lineage.")
    exempt_styles: bool = _setting(False, _FLAG, "Accept stylised mutants unchecked.")
    border: str = _setting(
        "black", _one_of("black", "white"), "What surrounds a picture that is made smaller by the usual mutations."
    )
    identities: bool = _setting(False, _FLAG, "Include forms that change nothing in the usual mutations.")
    initial: str = _setting(
        "seeds",
        _one_of("seeds", "given"),
        "What coverage begins with: the seeds, or what it has observed already, such as training data.",
    )
    wrong_seeds: bool = _setting(False, _FLAG, "Count mutants of inputs that were misread before any mutation.")
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
    def chosen_by(self) -> str:
        """Return how mutations are chosen: uniform, bandit, forecast or settings."""
        if self.mutation_choice != "auto":
            return self.mutation_choice
        return "uniform" if self.guide in ("coverage", "random") else "forecast"

    @property
    def needs_margin(self) -> bool:
        """Return whether the search cannot do without a score per class."""
        return self.guide in ("margin", "elites")

    @property
    def uses_margin(self) -> bool:
        """Return whether somebody wants to know how near inputs are to being misread."""
        return self.guide not in ("coverage", "random") or self.chosen_by in ("bandit", "forecast")

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
        if "mutation_choice" in stored and self.chosen_by == FuzzSettings.from_json(stored).chosen_by:
            stored["mutation_choice"] = self.mutation_choice
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
