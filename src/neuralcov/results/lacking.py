"""What the field shows and a suite lacks: kinds of behaviour to collect next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from neuralcov.results.compare import require_comparable
from neuralcov.results.results import Results

SCHEMA = 1
_LARGEST = 5
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
class Lacking:
    """Hold what the field shows and the suite lacks, by criterion and layer, the largest share first."""

    field: str
    suite: str
    rows: tuple[LackRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version."""
        return {"schema": SCHEMA, **asdict(self)}


def find_lacking(field: Results, suite: Results, counts: Mapping[str, Sequence[Sequence[int]]]) -> Lacking:
    """Rank what the suite lacks; refuse what was measured otherwise.

    Args:
        field: what was met in use.
        suite: what is tested with.
        counts: by criterion and column of kinds, how often the field showed each kind that the suite lacks, falling.
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
    return Lacking(field.suite, suite.suite, tuple(rows))
