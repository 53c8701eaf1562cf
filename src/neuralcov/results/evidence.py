"""Evidence: what was measured, with what, how, and what it gave, as one canonical JSON file with its own SHA-256.

The digest is that of the canonical JSON without the digest itself, and finds damage; who made the file is for a
signature to say. Schema history: 1, the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from neuralcov.core.container import canonical
from neuralcov.core.errors import StateFileError
from neuralcov.core.files import Place, write_text
from neuralcov.results.contradictions import contradictions
from neuralcov.results.gate import Verdict
from neuralcov.results.policy import ALLOW, MAX, MAX_DROP, MIN, WAIVE, Policy
from neuralcov.results.results import Results

CONTENT, SCHEMA = "evidence", 1
TOLERANCE = 0.01
# Below this, a difference of two figures is that of rounding on two machines.
_ABSOLUTE = 1e-9
_LONGEST = 1 << 28
_SECTIONS = ("identity", "procedure", "software", "results", "tolerance")
# By what rows of tables go.
_ROWS = ("layer", "column", "slice")
# Results that a second measurement must give again; notes and names are words about them.
_COMPARED = ("inputs", "definitions", "values", "details", "before", "layers", "sanity", "references", "slices")
_KEPT = (*_COMPARED, "model", "suite", "weights", "findings", "notes", "calibration")


@dataclass(frozen=True)
class Evidence:
    """Hold what an evidence file says, as plain data.

    Args:
        made: when, in UTC.
        identity: model, suite, calibration and preprocessing by their digests.
        procedure: criteria with their settings, layers, batch, order, precision, device and command.
        software: versions that a number may depend on.
        results: values, figures beside them, layers, sanity and findings.
        tolerance: how far a second measurement on other devices or software may be off.
        thresholds: what was asked, with requirement and reason where these were told.
        verdict: whether that was met; ``None`` where nothing was asked.
    """

    made: str
    identity: Mapping[str, Any]
    procedure: Mapping[str, Any]
    software: Mapping[str, Any]
    results: Mapping[str, Any]
    tolerance: Mapping[str, float]
    thresholds: tuple[Mapping[str, Any], ...] = ()
    verdict: Mapping[str, Any] | None = None

    def content(self) -> dict[str, Any]:
        """Return plain data, with the schema, without the digest."""
        plain = {"neuralcov": CONTENT, "schema": SCHEMA, **asdict(self)}
        plain["thresholds"] = list(self.thresholds)
        return plain

    @property
    def sha256(self) -> str:
        """The SHA-256 of the canonical JSON."""
        return hashlib.sha256(canonical(self.content()).encode()).hexdigest()

    def to_text(self) -> str:
        """Return the file's text: canonical JSON, sorted keys and no spaces, with the digest, and a line's end."""
        return canonical({**self.content(), "sha256": self.sha256}) + "\n"

    def write(self, path: Place) -> None:
        """Write the file."""
        write_text(path, self.to_text())

    def judged(self, policy: Policy, verdict: Verdict) -> Evidence:
        """Return this evidence with what was asked, and whether it is met."""
        return replace(self, thresholds=tuple(thresholds_of(policy)), verdict=_plain_json(verdict.to_json()))


def make_evidence(
    result: Results,
    *,
    made: str,
    identity: Mapping[str, Any],
    procedure: Mapping[str, Any],
    software: Mapping[str, Any],
    tolerance: float = TOLERANCE,
) -> Evidence:
    """Put evidence together; numbers that JSON does not know become null.

    Args:
        result: what was measured.
        made: when, in UTC.
        identity: see ``Evidence``, like the rest.
        procedure: see there.
        software: see there.
        tolerance: the share by which a figure may be off on other devices or software.
    """
    plain = result.to_json()
    return Evidence(
        made,
        _plain_json(identity),
        _plain_json(procedure),
        _plain_json(software),
        _plain_json({name: plain[name] for name in _KEPT}),
        {"relative": tolerance, "absolute": _ABSOLUTE},
    )


def thresholds_of(policy: Policy) -> Iterator[dict[str, Any]]:
    """Yield what a policy asks, a row each, with requirement and reason where these are known."""
    for asks, limits in ((MIN, policy.least), (MAX, policy.most), (MAX_DROP, policy.drops)):
        for figure, limit in limits.items():
            basis = policy.basis(asks, figure)
            yield _row(asks, figure, limit, requirement=basis.requirement, reason=basis.reason)
    for gate in policy.placed:
        told = {"place": [gate.place.kind, gate.place.name], "requirement": gate.requirement, "reason": gate.reason}
        for asks, asked in ((MIN, gate.least), (MAX, gate.most)):
            if asked is not None:
                yield _row(asks, gate.figure, asked, **told)
    for alarm, reason in policy.allowed.items():
        yield _row(ALLOW, alarm, reason=reason)
    for waiver in policy.waivers:
        yield _row(WAIVE, waiver.subject, reason=f"{waiver.reason} ({waiver.owner}, until {waiver.expires})")


def _row(asks: str, figure: str, limit: float | None = None, **told: Any) -> dict[str, Any]:
    row = {"asks": asks, "figure": figure, "limit": limit, "place": None, "requirement": None, "reason": None}
    return {**row, **told}


def read_evidence(data: bytes, name: str) -> Evidence:
    """Read an evidence file; refuse one that is damaged, foreign or of a newer schema. Nothing in it is called.

    Args:
        data: its bytes.
        name: what to call it in messages.
    """
    try:
        if len(data) > _LONGEST:
            raise ValueError(f"{len(data):,} bytes")
        content = json.loads(data.decode(), object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
        if not isinstance(content, dict) or content.get("neuralcov") != CONTENT:
            raise StateFileError(f"{name}: not an evidence file of neuralcov")
        if content.get("schema") != SCHEMA:
            raise StateFileError(
                f"{name}: evidence of schema {content.get('schema')}, this neuralcov reads {SCHEMA}: upgrade neuralcov"
            )
        told = content.pop("sha256", None)
        evidence = _from_json(content)
        if evidence.content() != content:
            raise ValueError("it has parts that evidence does not have")
        odd = next(contradictions(content), None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, StateFileError):
            raise
        raise StateFileError(f"{name}: not an evidence file, or damaged ({error})") from error
    if told != evidence.sha256:
        raise StateFileError(
            f"{name}: its content has SHA-256 {evidence.sha256[:12]}…, the file says {str(told)[:12]}…: it was changed"
        )
    if odd is not None:
        raise StateFileError(f"{name}: contradicts itself about {odd}")
    return evidence


def _from_json(content: Mapping[str, Any]) -> Evidence:
    for section in _SECTIONS:
        if not isinstance(content[section], dict):
            raise TypeError(f"{section} is no mapping")
    rows, verdict, made = content["thresholds"], content["verdict"], content["made"]
    if not isinstance(made, str) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError("made or thresholds are of another form")
    if verdict is not None and not isinstance(verdict, dict):
        raise TypeError("verdict is no mapping")
    for name in ("relative", "absolute"):
        if type(content["tolerance"][name]) not in (int, float) or not content["tolerance"][name] >= 0:
            raise ValueError(f"tolerance {name} is no number from 0 on")
    sections = {section: content[section] for section in _SECTIONS}
    return Evidence(made=made, thresholds=tuple(rows), verdict=verdict, **sections)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice, which readers may read in two ways."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _plain_json(content: Any) -> Any:
    """Return data as they come back from a file: lists for tuples, and nothing but JSON."""
    return json.loads(json.dumps(content, allow_nan=False))


@dataclass(frozen=True)
class FigureAgain:
    """Hold one number of the file beside that of the second measurement; ``None`` where one of them has none."""

    name: str
    stated: float | str | None
    found: float | str | None
    agrees: bool


@dataclass(frozen=True)
class Verification:
    """Hold how a second measurement compares with a file.

    Args:
        exact: whether numbers were compared to the bit.
        differs: why they were not, where they were not.
        figures: every number that was compared.
        tolerance: the share by which a figure may be off where the comparison is not exact.
        notes: what else to know.
    """

    exact: bool
    differs: tuple[str, ...]
    figures: tuple[FigureAgain, ...]
    tolerance: float
    notes: tuple[str, ...] = field(default=())

    @property
    def agrees(self) -> bool:
        """Whether every number agrees."""
        return all(figure.agrees for figure in self.figures)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, "agrees": self.agrees, **asdict(self)}


def compared_results(evidence: Evidence) -> dict[str, float | str | None]:
    """Return every number of the results that a second measurement must give again, by name."""
    found: dict[str, float | str | None] = {}
    for section in _COMPARED:
        if section in evidence.results:
            _gather(section, evidence.results[section], found)
    model = evidence.identity.get("model")
    _gather("parameters", model.get("parameters") if isinstance(model, dict) else None, found)
    _gather("unmeasured", evidence.procedure.get("unmeasured"), found)
    return found


def _gather(name: str, value: Any, found: dict[str, float | str | None]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _gather(f"{name}.{key}", item, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            named = item if isinstance(item, dict) else {}
            row = next((named[key] for key in _ROWS if key in named), index)
            _gather(f"{name}.{row}", item, found)
    elif value is None or isinstance(value, (int, float, str)):
        found[name] = value
