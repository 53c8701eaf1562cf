"""What a gate asks, read off the command line, ``policy.toml`` and ``[tool.neuralcov.gate]`` of ``pyproject.toml``."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.core.files import AnyPath, beside
from neuralcov.results.limits import read_number
from neuralcov.results.limits import reasons as reasons
from neuralcov.results.limits import thresholds as thresholds
from neuralcov.results.places import CLASS, KINDS, LAYER, SLICE, Place, PlacedGate
from neuralcov.results.policy import ALL, MAX, MAX_DROP, MIN, Basis, Policy, Waiver

_KEYS = ("min", "max", "max_drop", "allow_alarm", "waivers", "baseline", "gate")
_LIMIT_KEYS = ("limit", "requirement", "reason")
_GATE_KEYS = ("figure", "min", "max", "requirement", "reason", *KINDS)
_EXAMPLES = {LAYER: "'layer4.*'", SLICE: "'weather=rain'"}
_WAIVER_KEYS = ("gate", *KINDS, "reason", "owner", "expires")


def drops(texts: Sequence[str], option: str = "--max-drop") -> dict[str, float]:
    """Read ``5%`` for every criterion, or ``NAME=5%``."""
    found = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        limit = read_number(number, f"{option} {text!r}")
        if limit < 0:
            raise InputError(f"{option} {text!r}: expected 0 or more, such as 5%")
        found[name.strip() if equals else ALL] = limit
    return found


def policy_of(content: Mapping[str, Any], where: str) -> tuple[Policy, str | None]:
    """Return the policy that a table of a TOML file holds, and its baseline."""
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise InputError(f"{where}: {unknown[0]!r} is not known; there are {', '.join(_KEYS)}")
    bases: dict[tuple[str, str], Basis] = {}
    least, most = (_limits(_table(content, key, where), key, where, bases) for key in (MIN, MAX))
    drop = content.get("max_drop", {})
    whole = not isinstance(drop, dict) or "limit" in drop
    given = _limits({ALL: drop} if whole else drop, MAX_DROP, where, bases)
    allowed = [f"{name}={reason}" for name, reason in _table(content, "allow_alarm", where).items()]
    waivers = tuple(_waiver(entry, where) for entry in _tables(content, "waivers", where))
    policy = Policy(
        thresholds(least, f"{where}: min"),
        thresholds(most, f"{where}: max"),
        drops(given, f"{where}: max_drop"),
        reasons(allowed),
        waivers,
        bases=bases,
    )
    for entry in _tables(content, "gate", where):
        policy = policy.joined(_gate(entry, where))
    return policy, str(content["baseline"]) if "baseline" in content else None


def read_policy(path: Path) -> tuple[Policy, AnyPath | None]:
    """Read ``policy.toml``; its baseline is beside it."""
    policy, baseline = policy_of(_read(path), str(path))
    return policy, None if baseline is None else beside(path.parent, baseline)


def project_policy(start: Path) -> tuple[Policy, AnyPath | None]:
    """Read ``[tool.neuralcov.gate]`` of the ``pyproject.toml`` of this folder or the nearest one above."""
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            content = _read(path).get("tool", {}).get("neuralcov", {}).get("gate", {})
            policy, baseline = policy_of(content, f"{path} [tool.neuralcov.gate]")
            return policy, None if baseline is None else beside(folder, baseline)
    return Policy(), None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no TOML ({error})") from error


def _table(content: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise InputError(f'{where}: {key} = {found!r}: expected a table of names, such as "LCC.relative" = 0.9')
    return found


def _limits(table: Mapping[str, Any], asks: str, where: str, bases: dict[tuple[str, str], Basis]) -> list[str]:
    """Return limits as ``NAME=NUMBER``, and note what they rest on: ``{ limit = 0.9, requirement = "R1", … }``."""
    found = []
    for name, entry in table.items():
        limit = entry
        if isinstance(entry, dict):
            if "limit" not in entry or any(key not in _LIMIT_KEYS for key in entry):
                raise InputError(
                    f"{where}: {asks} of {name}: expected a number, or limit with requirement and reason, not {entry!r}"
                )
            limit = entry["limit"]
            bases[asks, name] = _basis(entry)
        found.append(f"{name}={limit}")
    return found


def _basis(entry: Mapping[str, Any]) -> Basis:
    requirement, reason = (None if entry.get(key) is None else str(entry[key]) for key in ("requirement", "reason"))
    return Basis(requirement, reason)


def _waiver(entry: Any, where: str) -> Waiver:
    if not isinstance(entry, dict) or any(key not in _WAIVER_KEYS for key in entry):
        raise InputError(f"{where}: a waiver has {', '.join(_WAIVER_KEYS)}, and not {entry!r}")
    for key in ("reason", "owner"):
        if not str(entry.get(key, "")).strip():
            raise InputError(f"{where}: the waiver {entry!r} has no {key}: every waiver says why, who and until when")
    expires = entry.get("expires")
    if isinstance(expires, datetime.datetime):
        expires = expires.date()
    if not isinstance(expires, datetime.date):
        raise InputError(f"{where}: the waiver {entry!r} has no date of expiry: write expires = 2027-01-31")
    place, gate = _place(entry, where), entry.get("gate")
    if place is None and gate is None:
        raise InputError(f"{where}: the waiver {entry!r} must name a gate, a {', a '.join(KINDS)}, or a gate and where")
    texts = str(entry["reason"]), str(entry["owner"])
    if gate is None and place is not None and place.kind == CLASS and type(entry[CLASS]) is int:
        # It need not occur at all.
        return Waiver(None, *texts, expires, entry[CLASS])
    return Waiver(None if gate is None else str(gate), *texts, expires, place=place)


def _gate(entry: Any, where: str) -> Policy:
    """Read one ``[[gate]]``: what is asked of a figure, of the whole suite or of a place."""
    if not isinstance(entry, dict) or any(key not in _GATE_KEYS for key in entry):
        raise InputError(f"{where}: a gate has {', '.join(_GATE_KEYS)}, and not {entry!r}")
    figure = entry.get("figure")
    if not isinstance(figure, str) or not ("min" in entry or "max" in entry):
        raise InputError(f'{where}: the gate {entry!r} needs a figure and a min or a max: figure = "SNAC", min = 0.1')
    limits = {key: read_number(str(entry[key]), f"{where}: {figure}") for key in (MIN, MAX) if key in entry}
    place, basis = _place(entry, where), _basis(entry)
    if place is not None:
        asked = PlacedGate(figure, place, limits.get(MIN), limits.get(MAX), basis.requirement, basis.reason)
        return Policy(placed=(asked,))
    least, most = ({figure: limits[key]} if key in limits else {} for key in (MIN, MAX))
    return Policy(least, most, bases={(asks, figure): basis for asks in limits})


def _place(entry: Mapping[str, Any], where: str) -> Place | None:
    """Read the layer, class or slice that an entry names; ``None`` for the whole suite."""
    named = [kind for kind in KINDS if kind in entry]
    if not named:
        return None
    kind, name = named[0], entry[named[0]]
    if len(named) > 1:
        raise InputError(f"{where}: {entry!r} names a {' and a '.join(named)}: expected one of them")
    if kind == CLASS and type(name) is not int and name != ALL:
        raise InputError(f'{where}: class = {name!r}: expected the number of a class, or "*" for each')
    if kind != CLASS and not (isinstance(name, str) and name.strip()):
        raise InputError(f"{where}: {kind} = {name!r}: expected a name, such as {_EXAMPLES[kind]}")
    return Place(kind, str(name))


def _tables(content: Mapping[str, Any], key: str, where: str) -> Sequence[Any]:
    found = content.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{where}: {key} = {found!r}: expected tables, each under [[{key}]]")
    return found
