"""Does a suite meet what was asked of it? Thresholds, a baseline, alarms, and waivers that expire."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.results.compare import NO_ERROR, NOT_JUDGED, Comparison, Row
from neuralcov.results.figures import find_figure
from neuralcov.results.results import Results

SCHEMA = 1
_ERRORS = 2.0
ALL = "*"


@dataclass(frozen=True)
class Waiver:
    """Excuse a check until a date, or a class that no input has.

    Args:
        gate: the figure, or ``alarm:NAME``, whose check is waived; ``None`` where a class is.
        reason: why.
        owner: who answers for it.
        expires: the last day it holds.
        never_seen: the class of training data that need not occur.
    """

    gate: str | None
    reason: str
    owner: str
    expires: datetime.date
    never_seen: int | None = None

    @property
    def subject(self) -> str:
        """What is waived, in words."""
        return f"class {self.never_seen}" if self.gate is None else self.gate


@dataclass(frozen=True)
class Policy:
    """Hold what is asked of a suite.

    Args:
        least: figure → what it must reach.
        most: figure → what it must not exceed.
        drops: figure → the share by which it may fall below the baseline; ``*`` for every criterion.
        allowed: alarm → why it may stand.
        waivers: checks that need not be met for a while.
    """

    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    drops: Mapping[str, float] = field(default_factory=dict)
    allowed: Mapping[str, str] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()

    def joined(self, other: Policy) -> Policy:
        """Return both together; where they disagree, the other decides."""
        return Policy(
            {**self.least, **other.least},
            {**self.most, **other.most},
            {**self.drops, **other.drops},
            {**self.allowed, **other.allowed},
            (*self.waivers, *other.waivers),
        )


@dataclass(frozen=True)
class Check:
    """Hold one thing that was asked, and whether it is met; ``waived`` says why it need not be."""

    name: str
    met: bool
    sentence: str
    waived: str | None = None

    @property
    def fine(self) -> bool:
        """Whether it is met, or need not be."""
        return self.met or self.waived is not None


@dataclass(frozen=True)
class Verdict:
    """Hold every check of a gate. ``notes`` say what was not judged and why."""

    suite: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        """Whether the gate is met."""
        return all(check.fine for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, "met": self.met, **asdict(self)}


def judge_gate(result: Results, policy: Policy, today: datetime.date, comparison: Comparison | None = None) -> Verdict:
    """Judge a measurement by a policy.

    Args:
        result: what was measured.
        policy: what is asked.
        today: the day by which waivers have expired or not.
        comparison: the baseline, first, beside this measurement, where drops are to be judged.
    """
    checks = _alarms(result, policy, today)
    for name, limit in policy.least.items():
        checks.append(_threshold(result, name, limit, least=True))
    for name, limit in policy.most.items():
        checks.append(_threshold(result, name, limit, least=False))
    notes: list[str] = []
    if policy.drops:
        if comparison is None:
            raise InputError("a limit on drops needs a baseline: give --baseline FILE")
        notes += comparison.notes
        checks += _drops(comparison, policy.drops, list(result.values), notes)
    checks = [_waived(check, policy.waivers, today) for check in checks]
    return Verdict(result.suite, (*checks, *_expired(policy.waivers, today)), tuple(notes))


def _alarms(result: Results, policy: Policy, today: datetime.date) -> list[Check]:
    """Check that no alarm stands, but for those that are allowed."""
    if result.sanity is None:
        return []
    checks = []
    excused = {waiver.never_seen for waiver in policy.waivers if waiver.gate is None and waiver.expires >= today}
    for alarm in result.sanity.alarms:
        reason = policy.allowed.get(alarm.name)
        if reason is None and alarm.name == "classes" and set(result.sanity.never_seen) <= excused:
            reason = "the classes are waived"
        checks.append(Check(f"alarm:{alarm.name}", False, alarm.sentence, reason))
    return checks


def _threshold(result: Results, name: str, limit: float, *, least: bool) -> Check:
    value = find_figure(result, name).value
    sign = "≥" if least else "≤"
    if value is None:
        return Check(name, False, f"{name} is not known, asked for {sign} {limit:g}")
    met = value >= limit if least else value <= limit
    return Check(name, met and not math.isnan(value), f"{name} is {value:.4g}, asked for {sign} {limit:g}")


def _drops(comparison: Comparison, limits: Mapping[str, float], criteria: list[str], notes: list[str]) -> list[Check]:
    rows = {row.name: row for row in comparison.rows}
    asked = {name: limit for name, limit in limits.items() if name != ALL}
    if ALL in limits:
        for name in criteria:
            relative = f"{name}.relative"
            headline = relative if relative in rows else name
            if headline in rows:
                asked.setdefault(headline, limits[ALL])
    checks = []
    for name, limit in asked.items():
        if name not in rows:
            raise InputError(f"--max-drop {name}: the suite and its baseline do not both have it; see compare")
        row, named = rows[name], name in limits
        if row.verdict != NOT_JUDGED or (named and row.why == NO_ERROR):
            checks.append(_drop(row, limit))
            continue
        said = f"{name}: the drop below the baseline is not judged: {row.why}"
        if named:
            checks.append(Check(name, False, said))
        else:
            notes.append(f"{said}; ask for it by name" if row.why == NO_ERROR else said)
    if not checks:
        raise InputError(
            "--max-drop: no figure of the suite can be judged against the baseline by its error; name one, such as "
            f"--max-drop '{next(iter(asked), 'NAME')}=5%'"
        )
    return checks


def _drop(row: Row, limit: float) -> Check:
    """Check that a figure has not fallen by more than a share of the baseline; within two errors it has not."""
    base, now = row.first, row.second
    fall = base - now
    share = fall / abs(base) if base else (math.inf if fall > 0 else 0.0)
    told = row.error is not None and fall <= _ERRORS * row.error
    beside = ", within two errors" if told and fall > 0 else "" if row.error is not None else ", no error is known"
    at = f" {row.why}" if row.why.startswith("at ") else ""
    moved = f"fell by {100 * share:.1f} %" if fall > 0 else "did not fall"
    said = f"{row.name} {moved}{at} ({base:.4g} to {now:.4g}{beside}), allowed {100 * limit:g} %"
    return Check(row.name, share <= limit or told, said)


def _waived(check: Check, waivers: Sequence[Waiver], today: datetime.date) -> Check:
    if check.fine:
        return check
    for waiver in waivers:
        if waiver.gate == check.name and waiver.expires >= today:
            said = f"waived by {waiver.owner} until {waiver.expires}: {waiver.reason}"
            return Check(check.name, check.met, check.sentence, said)
    return check


def _expired(waivers: Sequence[Waiver], today: datetime.date) -> list[Check]:
    """Fail for every waiver that has expired, whether it is needed or not: somebody meant to look again."""
    return [
        Check(
            f"waiver:{w.subject}",
            False,
            f"the waiver of {w.subject} by {w.owner} expired on {w.expires}: renew or drop it",
        )
        for w in waivers
        if w.expires < today
    ]
