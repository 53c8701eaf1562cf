"""Is a second measurement what an evidence file says? Refuse what does not fit; compare what does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from neuralcov.core.errors import MismatchError
from neuralcov.results.evidence import Evidence, FigureAgain, Verification, compared_results
from neuralcov.results.figures import find_figure
from neuralcov.results.places import CLASS, LAYER, Place, PlacedGate, figures_at
from neuralcov.results.policy import MAX, MAX_DROP, MIN
from neuralcov.results.results import Results

# Parts of the procedure by which numbers may differ in their last digits, and what to call them.
_OF_DIGITS = {"device": "device", "batch_size": "batch size", "precision": "precision", "order": "order of the inputs"}


def verify(stated: Evidence, again: Evidence, name: str) -> Verification:
    """Compare a second measurement with a file.

    To the bit where device, software, batch size, precision and order are those of the file, otherwise within the
    tolerance that the file states.

    Args:
        stated: what the file says.
        again: what was measured now.
        name: the file, for messages.

    Raises:
        MismatchError: the model, suite, criteria, layers, preprocessing or calibration are not those of the file.
    """
    _require_fitting(stated, again, name)
    differs = _differing(stated, again)
    exact = not differs
    notes = []
    learnt = [_part(evidence.identity, "calibration", "learnt") for evidence in (stated, again)]
    if learnt[0] != learnt[1]:
        if exact:
            raise MismatchError(
                f"{name}: the criteria learnt something else on the same device and software: give the training data "
                "that the file was made with"
            )
        notes.append("what calibration learnt differs, if only by digits of other software or devices")
    if any(row.get("asks") == MAX_DROP for row in stated.thresholds):
        notes.append("drops below a baseline are not judged again: gate does it, with the baseline")
    told, found = compared_results(stated), compared_results(again)
    tolerance = stated.tolerance
    figures = [
        FigureAgain(
            figure,
            told.get(figure),
            found.get(figure),
            figure in told and figure in found and _agree(told[figure], found[figure], None if exact else tolerance),
        )
        for figure in dict.fromkeys((*told, *found))
    ]
    return Verification(exact, tuple(differs), tuple(figures), float(tolerance["relative"]), tuple(notes))


def verdicts_again(stated: Evidence, result: Results) -> list[FigureAgain]:
    """Judge the thresholds of a file once more, those of ``min`` and ``max``: is each met as the file says?

    Args:
        stated: what the file says.
        result: what was measured now.
    """
    checks = [] if stated.verdict is None else stated.verdict["checks"]
    found = []
    for row in stated.thresholds:
        if row.get("asks") not in (MIN, MAX):
            continue
        figure, least, limit = str(row["figure"]), row["asks"] == MIN, float(row["limit"])
        for name, value in _figures(result, figure, row.get("place")).items():
            met = value is not None and not math.isnan(value) and (value >= limit if least else value <= limit)
            said = any(check["name"] == name and check["asks"] == row["asks"] and check["met"] for check in checks)
            label = f"{name} {'≥' if least else '≤'} {limit:g}"
            found.append(FigureAgain(label, _word(said), _word(met), said == met))
    return found


def columns_asked(stated: Evidence) -> list[str]:
    """Return the columns of metadata by which a file's inputs were sliced, or that its thresholds ask about."""
    sliced = [str(table["column"]) for table in stated.results.get("slices", ())]
    places = [row["place"] for row in stated.thresholds if row.get("place") is not None]
    named = [CLASS if kind == CLASS else str(name).partition("=")[0] for kind, name in places if kind != LAYER]
    return list(dict.fromkeys((*sliced, *named)))


def _figures(result: Results, figure: str, place: Any) -> dict[str, float | None]:
    """Return the values that one threshold is about, by the name of its check."""
    if place is None:
        return {figure: find_figure(result, figure).value}
    kind, name = place
    found = figures_at(result, PlacedGate(figure, Place(kind, str(name))))
    return {f"{figure} [{where}]": value for where, value in found.items()}


def _word(met: bool) -> str:
    return "met" if met else "not met"


def _require_fitting(stated: Evidence, again: Evidence, name: str) -> None:
    """Refuse a measurement of something else, in one sentence that names both sides."""
    pairs = {
        "was measured on weights {0}, this model has {1}": ("model", "id"),
        "is about the inputs {0}, these are {1}": ("suite", "runs"),
        "says preprocessing {0}, here it is {1}": ("preprocessing", "sha256"),
    }
    for sentence, (section, key) in pairs.items():
        ours, theirs = (_part(evidence.identity, section, key) for evidence in (again, stated))
        if ours != theirs:
            raise MismatchError(f"{name} {sentence.format(_short(theirs), _short(ours))}")
    taught = [_part(evidence.identity, "calibration", "model") for evidence in (stated, again)]
    if None not in taught and taught[0] != taught[1]:
        raise MismatchError(f"{name} was calibrated on weights {_short(taught[0])}, here it is {_short(taught[1])}")
    for key, what in (("criteria", "criteria"), ("layers", "layers")):
        if stated.procedure.get(key) != again.procedure.get(key):
            raise MismatchError(
                f"{name} has other {what}: {_first_difference(stated.procedure.get(key), again.procedure.get(key))}"
            )


def _differing(stated: Evidence, again: Evidence) -> list[str]:
    """Say what may change the last digits of numbers and is not as in the file."""
    found = [
        f"{name} {stated.software.get(name)} in the file, {again.software.get(name)} here"
        for name in {**stated.software, **again.software}
        if stated.software.get(name) != again.software.get(name)
    ]
    for key, what in _OF_DIGITS.items():
        theirs, ours = stated.procedure.get(key), again.procedure.get(key)
        if theirs != ours or ours is None:
            found.append(f"{what} {_told(theirs)} in the file, {_told(ours)} here")
    return found


def _agree(stated: Any, found: Any, tolerance: Mapping[str, float] | None) -> bool:
    if tolerance is None or isinstance(stated, (str, bool)) or stated is None or found is None:
        return bool(stated == found)
    if not isinstance(found, (int, float)):
        return False
    return bool(abs(found - stated) <= tolerance["absolute"] + tolerance["relative"] * abs(stated))


def _part(content: Mapping[str, Any], section: str, key: str) -> Any:
    found = content.get(section)
    return found.get(key) if isinstance(found, Mapping) else None


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{_short(run.get('id'))} ({run.get('inputs')})" for run in value) or "none"
    return "not told" if value is None else f"{str(value)[:12]}…"


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return "not told" if value is None else str(value)


def _first_difference(stated: Any, found: Any) -> str:
    theirs, ours = ([] if part is None else list(part) for part in (stated, found))
    for one, other in zip(theirs, ours, strict=False):
        if one != other:
            return f"{one} in the file, {other} here"
    return f"{len(theirs)} in the file, {len(ours)} here"
