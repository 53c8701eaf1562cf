"""Two measurements side by side. Nobody wins within two standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from neuralcov.core.counted import counted
from neuralcov.core.errors import MismatchError
from neuralcov.results.figures import Figure, all_figures
from neuralcov.results.results import Results

SCHEMA = 1
# Nothing within so many standard errors is called a difference.
ERRORS_APART = 2.0
# Verdicts: the first is above or below the second; no difference that could be told; not judged.
ABOVE, BELOW, EQUAL, NOT_JUDGED = ">", "<", "=", "?"
# Why a figure is not judged.
NO_ERROR, OTHER_SIZE, OTHER_ORIGIN = "no error is known", "other size", "other model or calibration"
_COUNTED = ("classes", "duplicates", "near_duplicates")


@dataclass(frozen=True)
class Side:
    """Hold one measurement.

    Args:
        result: what was measured.
        rarefied: by criterion, the value of as many of its inputs as the smaller suite has, where that can be told.
    """

    result: Results
    rarefied: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """Hold one figure of both.

    Args:
        name: of the figure.
        first: its value in the first.
        second: its value in the second.
        error: standard error of the difference, ``None`` where none is known.
        verdict: ``>`` or ``<`` where the first is above or below the second, ``=`` within two errors, ``?`` not judged.
        why: why it is not judged, or how it was compared.
    """

    name: str
    first: float
    second: float
    error: float | None
    verdict: str
    why: str = ""

    @property
    def difference(self) -> float:
        """Return by how much the second is above the first."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """Hold two measurements side by side; ``notes`` say what to bear in mind, the most important first."""

    first: str
    second: str
    inputs: tuple[int, int]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, **asdict(self)}


def compare(first: Side, second: Side, *, models: bool = False) -> Comparison:
    """Compare two measurements; refuse other settings, definitions or layers.

    Args:
        first: one measurement.
        second: the other.
        models: compare one suite on two networks, which may have other layers: relative figures only.
    """
    a, b = first.result, second.result
    common = require_comparable(a, b, layers=not models)
    notes = _notes(a, b, common)
    same = _same_origin(a, b, common) and not models
    theirs = {figure.name: figure for figure in all_figures(b)}
    rows = []
    for figure in all_figures(a):
        other = theirs.get(figure.name)
        if models and not figure.relative:
            continue
        if other is not None and (_criterion(figure.name, a) is None or _criterion(figure.name, a) in common):
            rows.append(_row(figure, other, first, second, same=same))
    return Comparison(a.suite, b.suite, (a.inputs, b.inputs), tuple(rows), tuple(notes))


def require_comparable(a: Results, b: Results, *, layers: bool = True) -> tuple[str, ...]:
    """Return the criteria of both; refuse other settings, other definitions and, if they matter, other ``layers``."""
    common = tuple(name for name in a.values if name in b.values)
    for name in a.values:
        rival = next((other for other in b.values if _class(other) == _class(name)), None)
        if name not in common and rival is not None and rival not in a.values:
            raise MismatchError(f"criteria differ: {a.suite} has {name}, {b.suite} has {rival}")
    if not common:
        raise MismatchError(
            f"no criterion in common: {a.suite} has {', '.join(a.values)}, {b.suite} has {', '.join(b.values)}"
        )
    for name in common:
        ours, theirs = a.definitions.get(name), b.definitions.get(name)
        if ours != theirs:
            raise MismatchError(
                f"{name}: {a.suite} was measured under definition {ours}, {b.suite} under {theirs}: measure again"
            )
    widths = [{row.layer: row.neurons for row in side.layers} for side in (a, b)]
    if layers and widths[0] != widths[1]:
        odd = next(iter(widths[0].items() ^ widths[1].items()))[0]
        told = [counted(some[odd], "neuron") if odd in some else "none" for some in widths]
        raise MismatchError(f"layers differ: {odd!r} has {told[0]} in {a.suite}, {told[1]} in {b.suite}")
    return common


def _notes(a: Results, b: Results, common: tuple[str, ...]) -> list[str]:
    said = []
    changed = [what for what, differs in _origins(a, b, common).items() if differs]
    if changed:
        said.append(
            f"another {' and '.join(changed)}: only figures that are relative to their own calibration are judged"
        )
    if a.inputs != b.inputs:
        said.append(
            f"{a.inputs:,} against {counted(b.inputs, 'input')}: values that depend on size are compared at "
            f"{min(a.inputs, b.inputs):,}, drawn at random, where kinds are counted, and not judged elsewhere"
        )
    alone = [name for name in (*a.values, *b.values) if name not in common]
    if alone:
        said.append(f"in one of them only: {', '.join(alone)}")
    for side in (a, b):
        said += [f"{side.suite}: ALARM {alarm.name}: {alarm.sentence}" for alarm in _alarms(side)]
    return said


def _alarms(result: Results) -> tuple[Any, ...]:
    return () if result.sanity is None else result.sanity.alarms


def _origins(a: Results, b: Results, common: tuple[str, ...]) -> dict[str, bool]:
    """Return what both come from, and whether it differs."""
    return {
        "model": a.model_id != b.model_id,
        "calibration": any(a.calibration.get(name) != b.calibration.get(name) for name in common),
    }


def _same_origin(a: Results, b: Results, common: tuple[str, ...]) -> bool:
    return not any(_origins(a, b, common).values())


def _row(one: Figure, two: Figure, first: Side, second: Side, *, same: bool) -> Row:
    a, b, why = one.value, two.value, ""
    assert a is not None
    assert b is not None
    errors = [one.error, two.error]
    if not same and not one.relative:
        return Row(one.name, a, b, None, NOT_JUDGED, OTHER_ORIGIN)
    sizes = (first.result.inputs, second.result.inputs)
    if one.name == "inputs":
        return Row(one.name, a, b, 0.0, EQUAL if a == b else ABOVE if a > b else BELOW)
    if one.name in _COUNTED:
        return Row(one.name, a, b, None, EQUAL if a == b else NOT_JUDGED, "" if a == b else "counted, not judged")
    if one.sized and sizes[0] != sizes[1]:
        larger = 0 if sizes[0] > sizes[1] else 1
        fewer = (first, second)[larger].rarefied.get(one.name)
        if fewer is None:
            return Row(one.name, a, b, None, NOT_JUDGED, OTHER_SIZE)
        a, b = (fewer, b) if larger == 0 else (a, fewer)
        own = errors[larger]
        # Fewer inputs scatter more.
        errors[larger] = None if own is None else own * math.sqrt(max(sizes) / min(sizes))
        why = f"at {counted(min(sizes), 'input')}"
    if errors[0] is None or errors[1] is None:
        return Row(one.name, a, b, None, EQUAL if a == b else NOT_JUDGED, why if a == b else NO_ERROR)
    error = math.hypot(errors[0], errors[1])
    verdict = EQUAL if abs(a - b) <= ERRORS_APART * error else ABOVE if a > b else BELOW
    return Row(one.name, a, b, error, verdict, why)


def _class(name: str) -> str:
    return name.partition("(")[0]


def _criterion(name: str, result: Results) -> str | None:
    """Return the criterion that a figure belongs to, ``None`` for one of the suite."""
    if name in result.values:
        return name
    head = name.rpartition(".")[0]
    return head if head in result.values else None
