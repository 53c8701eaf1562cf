"""Gates of one layer, class or slice: where a figure is looked at, and what it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from neuralcov.core.arguments import match_globs
from neuralcov.core.errors import InputError
from neuralcov.core.findings import LayerRow
from neuralcov.results.results import Results
from neuralcov.results.slices import SliceRow

LAYER, CLASS, SLICE = "layer", "class", "slice"
KINDS = (LAYER, CLASS, SLICE)


@dataclass(frozen=True)
class Place:
    """Name a part of a measurement, or several by a glob.

    Args:
        kind: ``layer``, ``class`` or ``slice``.
        name: the layer, the class or ``column=value``; ``layer4.*|fc``, ``*`` and ``weather=*`` name several.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def covers(self, other: Place) -> bool:
        """Return whether another place is this one or among those it names.

        >>> Place("layer", "layer4.*").covers(Place("layer", "layer4.2.conv3"))
        True
        """
        return self.kind == other.kind and (self.name == other.name or bool(match_globs([other.name], self.name)))

    def chosen(self, names: list[str]) -> list[str]:
        """Return which names this place names. A name that is there as it stands is no glob."""
        return [self.name] if self.name in names else match_globs(names, self.name)

    @property
    def several(self) -> bool:
        """Whether it reads as a glob."""
        return any(sign in self.name for sign in "*?|!")


@dataclass(frozen=True)
class PlacedGate:
    """Ask something of a figure in one place.

    Args:
        figure: a criterion or a figure beside it; for classes and slices also ``NAME.lost``, ``inputs``, ``accuracy``.
        place: where.
        least: what it must reach there, if anything.
        most: what it must not exceed there, if anything.
        requirement: the id of a requirement that this rests on.
        reason: why this number.
    """

    figure: str
    place: Place
    least: float | None = None
    most: float | None = None
    requirement: str | None = None
    reason: str | None = None


def figures_at(result: Results, gate: PlacedGate) -> dict[Place, float | None]:
    """Return the figure in every place that a gate names; ``None`` where there is none, or no input.

    Refuse a figure that no such place has, an unknown layer, and columns that were not measured.
    """
    return _of_layers(result, gate) if gate.place.kind == LAYER else _of_slices(result, gate)


def _of_layers(result: Results, gate: PlacedGate) -> dict[Place, float | None]:
    rows = {row.layer: row for row in result.layers}
    chosen = gate.place.chosen(list(rows))
    if not chosen:
        raise InputError(f"{gate.figure} of {gate.place}: there is no such layer; there are {', '.join(rows)}")
    found = {name: _figures(row) for name, row in rows.items()}
    _require(gate, list(dict.fromkeys(key for some in found.values() for key in some)))
    return {Place(LAYER, name): found[name].get(gate.figure) for name in chosen}


def _figures(row: LayerRow) -> dict[str, float]:
    return {name: value for name, value in {**row.values, **row.figures}.items() if value is not None}


def _of_slices(result: Results, gate: PlacedGate) -> dict[Place, float | None]:
    kind = gate.place.kind
    column, equals, value = (CLASS, "=", gate.place.name) if kind == CLASS else gate.place.name.partition("=")
    if not equals:
        raise InputError(f"{gate.figure} of {gate.place}: expected column=value, such as slice = 'weather=rain'")
    table = next((table for table in result.slices if table.column == column), None)
    if table is None:
        there = ", ".join(table.column for table in result.slices) or "none"
        raise InputError(
            f"{gate.figure} of {gate.place}: slices by {column} were not measured (there are {there}); measure with "
            f"--slices {column}"
        )
    rows = {row.slice: row for row in table.rows}
    unseen = result.sanity.never_seen if kind == CLASS and result.sanity is not None else ()
    names = [*rows, *(str(number) for number in unseen if str(number) not in rows)]
    if kind == CLASS:
        names.sort(key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    wanted = Place(kind, value).chosen(names) or ([] if Place(kind, value).several else [value])
    figures: dict[str, Callable[[SliceRow], float | None]] = {"inputs": lambda row: row.inputs}
    if any(row.judged for row in table.rows):
        figures["accuracy"] = lambda row: row.accuracy
    for name in result.values:
        figures[name], figures[f"{name}.lost"] = _reader("alone", name), _reader("lost", name)
    _require(gate, list(figures))
    label = "" if kind == CLASS else f"{column}="
    read = figures[gate.figure]
    empty = 0.0 if gate.figure == "inputs" else None
    return {Place(kind, label + name): read(rows[name]) if name in rows else empty for name in wanted}


def _reader(part: str, name: str) -> Callable[[SliceRow], float | None]:
    def read(row: SliceRow) -> float | None:
        numbers: Mapping[str, float | None] = getattr(row, part)
        return numbers.get(name)

    return read


def _require(gate: PlacedGate, there: list[str]) -> None:
    if gate.figure not in there:
        raise InputError(f"{gate.figure!r} is no figure of a {gate.place.kind}: there are {', '.join(there)}")
