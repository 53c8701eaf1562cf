"""What the field shows and a suite lacks: kinds of behaviour to collect next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from neuralcov.results.compare import require_comparable
from neuralcov.results.input_table import InputTable
from neuralcov.results.results import Results

SCHEMA = 1
_LARGEST = 5
_KIND = ".kind"
ALL_LAYERS = "(all layers)"


@dataclass(frozen=True)
class LackRow:
    """Hold the kinds of one layer that the suite lacks.

    Args:
        criterion: what counts the kinds.
        layer: where.
        kinds: how many kinds the field shows and the suite lacks.
        inputs: how many inputs of the field show them.
        share: of the inputs of the field.
        largest: how many inputs show each of the most frequent ones.
    """

    criterion: str
    layer: str
    kinds: int
    inputs: int
    share: float
    largest: tuple[int, ...]


@dataclass(frozen=True)
class LackedKind:
    """Hold one kind of the last layer that the suite lacks, and inputs of the field to collect for it.

    Args:
        criterion: what counts the kinds.
        inputs: how many inputs of the field show it.
        prediction: what the model decides there, where that is known.
        ids: the names of the first of them.
    """

    criterion: str
    inputs: int
    prediction: int | None
    ids: tuple[Any, ...]


@dataclass(frozen=True)
class Lacking:
    """Hold what the field shows and the suite lacks, by criterion and layer, the largest share first.

    ``collect`` are the kinds of the last layer with inputs that show them, those that most inputs show first; nothing
    where the two states keep no table of their inputs.
    """

    field: str
    suite: str
    rows: tuple[LackRow, ...]
    collect: tuple[LackedKind, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, **asdict(self)}


def find_lacking(
    field: Results,
    suite: Results,
    counts: Mapping[str, Sequence[Sequence[int]]],
    tables: tuple[InputTable | None, InputTable | None] = (None, None),
) -> Lacking:
    """Rank what the suite lacks; refuse what was measured otherwise.

    Args:
        field: what was met in use.
        suite: what is tested with.
        counts: by criterion and column of kinds, how often the field showed each kind that the suite lacks, falling.
        tables: of the inputs of both, where their states keep them.
    """
    common = require_comparable(field, suite)
    rows = []
    for name in (name for name in common if name in counts):
        layers = [row.layer for row in field.layers] if len(counts[name]) == len(field.layers) else [ALL_LAYERS]
        found = []
        for layer, some in zip(layers, counts[name], strict=True):
            inputs = sum(some)
            share = inputs / field.inputs if field.inputs else 0.0
            found.append(LackRow(name, layer, len(some), inputs, share, tuple(some[:_LARGEST])))
        rows += sorted(found, key=lambda row: -row.share)
    return Lacking(field.suite, suite.suite, tuple(rows), tuple(_to_collect(common, *tables)))


def _to_collect(criteria: Sequence[str], field: InputTable | None, suite: InputTable | None) -> Iterator[LackedKind]:
    """Yield the kinds of the last layer that inputs of the field have and none of the suite, most inputs first."""
    if field is None or suite is None:
        return
    for name in criteria:
        column = f"{name}{_KIND}"
        if column not in field.columns or column not in suite.columns:
            continue
        known, rows = set(suite[column]), dict[Any, list[int]]()
        for row, kind in enumerate(field[column]):
            if kind is not None and kind not in known:
                rows.setdefault(kind, []).append(row)
        decided = field.columns.get("prediction")
        for some in sorted(rows.values(), key=len, reverse=True):
            prediction = None if decided is None or decided[some[0]] is None else int(decided[some[0]])
            yield LackedKind(name, len(some), prediction, tuple(_plain(field["id"][row]) for row in some[:_LARGEST]))


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
