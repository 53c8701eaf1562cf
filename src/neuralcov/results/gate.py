"""Does a suite meet what was asked of it? Thresholds, a baseline, alarms, and waivers that expire."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.results.compare import ERRORS_APART, NO_ERROR, NOT_JUDGED, Comparison, Row
from neuralcov.results.figures import find_figure
from neuralcov.results.places import LAYER, Place, PlacedGate, figures_at
from neuralcov.results.policy import ALL, MAX, MAX_DROP, MIN, Policy, Waiver
from neuralcov.results.results import Results

SCHEMA = 1


@dataclass(frozen=True)
class Check:
    """Hold one thing that was asked, and whether it is met.

    ``waived`` says why it need not be; ``asks`` is ``min``, ``max`` or ``max_drop``, ``None`` for alarms and waivers.
    """

    name: str
    met: bool
    sentence: str
    waived: str | None = None
    asks: str | None = None
    requirement: str | None = None
    reason: str | None = None

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
    notes: list[str] = []
    judging = _Judging(policy.waivers, today)
    for check, excused in _alarms(result, policy, judging):
        judging.add(check if excused is None else replace(check, waived=excused))
    for name, limit in policy.least.items():
        judging.add(_based(_threshold(name, find_figure(result, name).value, limit, least=True), policy, MIN))
    for name, limit in policy.most.items():
        judging.add(_based(_threshold(name, find_figure(result, name).value, limit, least=False), policy, MAX))
    for gate in policy.placed:
        for place, check in _placed(result, gate, notes):
            judging.add(check, gate.figure, place)
    if policy.drops:
        if comparison is None:
            raise InputError("a limit on drops needs a baseline: give --baseline FILE")
        notes += comparison.notes
        for check in _drops(comparison, policy.drops, list(result.values), notes):
            judging.add(_based(check, policy, MAX_DROP))
    checks = (*judging.checks, *_expired(policy.waivers, today))
    return Verdict(result.suite, checks, (*notes, *judging.idle()))


class _Judging:
    """Gather checks, each excused by the first waiver that holds and is about it."""

    def __init__(self, waivers: Sequence[Waiver], today: datetime.date) -> None:
        self.checks: list[Check] = []
        self.holding = [waiver for waiver in waivers if waiver.expires >= today]
        self.used: set[Waiver] = set()

    def add(self, check: Check, figure: str | None = None, place: Place | None = None) -> None:
        """Add a check, that of a figure in a place where it is not that of its name in the whole suite."""
        waiver = next((some for some in self.holding if some.excuses(figure or check.name, place)), None)
        if waiver is not None and not check.fine:
            self.used.add(waiver)
            said = f"waived by {waiver.owner} until {waiver.expires}: {waiver.reason}"
            check = replace(check, waived=said)
        self.checks.append(check)

    def idle(self) -> list[str]:
        """Tell of waivers that hold and excuse nothing: they are shown all the same."""
        return [
            f"the waiver of {waiver.subject} by {waiver.owner} until {waiver.expires} is not needed: {waiver.reason}"
            for waiver in self.holding
            if waiver not in self.used
        ]


def _based(check: Check, policy: Policy, asks: str) -> Check:
    """Say with a check what it asks, and what that rests on."""
    basis = policy.basis(asks, check.name)
    return replace(check, asks=asks, requirement=basis.requirement, reason=basis.reason)


def _alarms(result: Results, policy: Policy, judging: _Judging) -> Iterator[tuple[Check, str | None]]:
    """Yield a check for every alarm that stands, and why it may, if it is allowed."""
    if result.sanity is None:
        return
    excusing = [waiver for waiver in judging.holding if waiver.gate is None and waiver.never_seen is not None]
    for alarm in result.sanity.alarms:
        reason = policy.allowed.get(alarm.name)
        unseen = set(result.sanity.never_seen)
        if reason is None and alarm.name == "classes" and unseen <= {waiver.never_seen for waiver in excusing}:
            reason = "the classes are waived"
            judging.used.update(waiver for waiver in excusing if waiver.never_seen in unseen)
        yield Check(f"alarm:{alarm.name}", False, alarm.sentence), reason


def _threshold(name: str, value: float | None, limit: float, *, least: bool, place: Place | None = None) -> Check:
    sign, of = "≥" if least else "≤", "" if place is None else f" of {place}"
    label = name if place is None else f"{name} [{place}]"
    if value is None:
        return Check(label, False, f"{name}{of} is not known, asked for {sign} {limit:g}")
    met = value >= limit if least else value <= limit
    return Check(label, met and not math.isnan(value), f"{name}{of} is {value:.4g}, asked for {sign} {limit:g}")


def _placed(result: Results, gate: PlacedGate, notes: list[str]) -> Iterator[tuple[Place, Check]]:
    """Yield a check for every place that a gate names.

    Layers that have no such figure, of several, are told of and not judged. A gate that judges nothing is not met.
    """
    judged = False
    for place, value in figures_at(result, gate).items():
        if value is None and place.kind == LAYER and place != gate.place:
            notes.append(f"{gate.figure} of {place} is not known and not judged")
            continue
        judged = True
        for limit, least in ((gate.least, True), (gate.most, False)):
            if limit is not None:
                check = _threshold(gate.figure, value, limit, least=least, place=place)
                asks = MIN if least else MAX
                yield place, replace(check, asks=asks, requirement=gate.requirement, reason=gate.reason)
    if not judged:
        yield (
            gate.place,
            Check(f"{gate.figure} [{gate.place}]", False, f"{gate.figure} is not known of any {gate.place}"),
        )


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
    told = row.error is not None and fall <= ERRORS_APART * row.error
    beside = ", within two errors" if told and fall > 0 else "" if row.error is not None else ", no error is known"
    at = f" {row.why}" if row.why.startswith("at ") else ""
    moved = f"fell by {100 * share:.1f} %" if fall > 0 else "did not fall"
    said = f"{row.name} {moved}{at} ({base:.4g} to {now:.4g}{beside}), allowed {100 * limit:g} %"
    return Check(row.name, share <= limit or told, said)


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
