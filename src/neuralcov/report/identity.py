"""What a report says of how its figures came about: model, suite, what criteria learnt, software, procedure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from neuralcov.core.counted import counted
from neuralcov.results.results import Results

# Longer lists are counted.
_LISTED = 12
_MEASURED = "measured"
# What is told in rows of its own; the rest is told as it is.
_TOLD = {"model", "calibration", "software", "device", "procedure", _MEASURED}


def evidence_rows(result: Results) -> list[tuple[str, tuple[str, ...]]]:
    """Return what was measured with what: names, each with lines of text."""
    origin = result.provenance
    model, learnt = _mapping(origin, "model"), _mapping(_mapping(origin, "calibration"), "model")
    rows: list[tuple[str, tuple[str, ...]]] = [
        ("Model", (_model(result, model), _digest(result.model_id or model.get("id")))),
        (
            "Suite",
            (
                f"{result.suite}, {counted(result.inputs, 'input')}"
                if result.suite
                else counted(result.inputs, "input"),
            ),
        ),
    ]
    rows += [("Criteria", tuple(_criteria(result)))]
    if learnt.get("id") is not None:
        same = learnt["id"] == (result.model_id or model.get("id"))
        rows.append(("Calibrated on", ("these weights",) if same else ("other weights", _digest(learnt["id"]))))
    rows += [
        (name.replace("_", " ").capitalize(), (text,))
        for name, text in _flat({key: value for key, value in origin.items() if key not in _TOLD})
    ]
    rows.append(
        ("Software", (", ".join(f"{name} {version}" for name, version in _mapping(origin, "software").items()),))
    )
    rows.append(("Device", (str(origin.get("device") or ""),)))
    rows.append(("Measured", (str(origin.get(_MEASURED) or ""),)))
    return [(name, tuple(filter(None, lines))) for name, lines in rows if any(lines)]


def _model(result: Results, model: Mapping[str, Any]) -> str:
    parts = [result.model, str(model.get("class") or "")]
    parts = list(dict.fromkeys(part for part in parts if part))
    if "parameters" in model:
        parts.append(f"{model['parameters']:,} parameters")
    if result.layers:
        neurons = sum(row.neurons for row in result.layers)
        parts.append(f"{counted(len(result.layers), 'layer')} with {counted(neurons, 'neuron')} measured")
    if result.weights:
        parts.append(f"weights {result.weights}")
    return ", ".join(parts)


def _criteria(result: Results) -> Iterator[str]:
    for name in result.values:
        definition, known = result.definitions.get(name), result.calibration.get(name)
        told = name if definition is None else f"{name}, definition {definition}"
        yield f"{told}, learnt {known[:16]}…" if known else told


def _digest(found: Any) -> str:
    return f"sha256 {found}" if found else ""


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def procedure_rows(result: Results) -> list[tuple[str, str]]:
    """Return how the suite was measured, as far as that was noted."""
    noted = dict(result.provenance.get("procedure") or {})
    command = noted.pop("command", None)
    rows = [("command", " ".join(map(str, command)))] if command else []
    return rows + [(name, value) for name, value in _flat(noted) if value]


def _flat(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        name = f"{above}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            if len(value) > _LISTED:
                yield name, counted(len(value), "entry")
            else:
                yield name, ", ".join(_words(item) for item in value)
        elif value is not None:
            yield name, _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_words(item)}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
