"""Does an evidence file contradict itself? Parts that say the same thing twice are compared before any measurement.

A digest is no signature: whoever changes a file can make a new one. What is measured again is compared with the second
measurement; what a file only says about itself, such as that its gate is met, is compared with the rest of it here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from neuralcov.core.container import canonical
from neuralcov.results.policy import ASKS


def contradictions(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield, in words, what two parts of an evidence file say differently; what one of them leaves out is no matter.

    Args:
        content: the file as plain data.
    """
    identity, procedure, results = (content[section] for section in ("identity", "procedure", "results"))
    criteria = procedure.get("criteria")
    defined = None if criteria is None else {str(one["name"]): one["definition"] for one in criteria}
    twice = {
        "the number of inputs": (_part(identity, "suite", "inputs"), procedure.get("inputs")),
        "what criteria learnt": (_part(identity, "calibration", "learnt"), results.get("calibration")),
        "definitions": (defined, results.get("definitions")),
    }
    for what, (one, other) in twice.items():
        if one is not None and other is not None and one != other:
            yield f"{what}: {one} and {other}"
    told, digest = (_part(identity, "preprocessing", key) for key in ("told", "sha256"))
    if digest is not None and hashlib.sha256(canonical(told).encode()).hexdigest() != digest:
        yield f"preprocessing: {told} has another SHA-256 than {digest}"
    yield from _odd_thresholds(content["thresholds"])
    if content["verdict"] is not None:
        yield from _odd_verdict(content["verdict"], results)


def _odd_thresholds(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield thresholds that nobody could judge."""
    for row in rows:
        place, limit = row.get("place"), row.get("limit")
        placed = place is None or (isinstance(place, list) and [type(part) for part in place] == [str, str])
        numbered = limit is None or (isinstance(limit, (int, float)) and not isinstance(limit, bool))
        if row.get("asks") not in ASKS or not isinstance(row.get("figure"), str) or not placed or not numbered:
            yield f"a threshold that asks nothing known: {dict(row)}"


def _odd_verdict(verdict: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a verdict is not what its own checks and the alarms make it."""
    checks = {str(check["name"]): check for check in verdict["checks"]}
    fine = all(check["met"] or check["waived"] is not None for check in verdict["checks"])
    if verdict["met"] is not fine:
        yield f"the gate is {'' if verdict['met'] else 'not '}met, by its checks it is {'' if fine else 'not '}met"
    for alarm in (results.get("sanity") or {}).get("alarms", ()):
        check = checks.get(f"alarm:{alarm['name']}")
        if check is None or check["met"]:
            yield f"the alarm {alarm['name']} stands, and the verdict does not say so"


def _part(content: Mapping[str, Any], section: str, key: str) -> Any:
    found = content.get(section)
    return found.get(key) if isinstance(found, Mapping) else None
