"""The result of one measurement, as plain data."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from neuralcov.core.files import Place, write_json
from neuralcov.core.findings import LayerRow, Unmeasured
from neuralcov.results.sanity import Sanity
from neuralcov.results.sections import FewerInputs, Gallery, GrowthCurve, LayerNeurons, Reference, SuiteMap
from neuralcov.results.slices import SliceTable

SCHEMA = 1


@dataclass(frozen=True)
class Results:
    """Hold what a suite covers of a model.

    ``before`` are the values the suite was added to, where it was measured on top of another one. ``weights`` says
    where the model's come from: ``given``, ``random`` or ``as built``; ``notes`` are what the command told beside.
    ``unmeasured`` is the share of the model's parameters that belong to no measured layer, where there is a model.
    ``slices`` has a table for each column by which the suite was sliced. ``sanity`` has what to look at first; it is
    not told for a suite on top of another one. ``definitions`` are the numbers of the definitions that criteria were
    measured under, ``model_id`` is the SHA-256 of the model's weights, where it was needed. ``missing`` are, by
    criterion and layer, the numbers of the neurons of which nothing is covered, for criteria that tick off cells of
    neurons. What follows is filled by ``assess`` as far as it is known, and shown by reports: ``growth`` and
    ``references`` by criterion, ``neurons`` by layer, a ``map`` of training data and suite, ``galleries`` of inputs to
    look at, how ``fewer`` inputs would do, and ``provenance``: what was measured with what.
    """

    model: str
    suite: str
    inputs: int
    values: Mapping[str, float]
    details: Mapping[str, Mapping[str, float]]
    layers: tuple[LayerRow, ...]
    findings: tuple[str, ...]
    calibration: Mapping[str, str | None]
    before: Mapping[str, float] | None = None
    weights: str | None = None
    notes: tuple[str, ...] = ()
    unmeasured: Unmeasured | None = None
    slices: tuple[SliceTable, ...] = ()
    sanity: Sanity | None = None
    definitions: Mapping[str, int] = field(default_factory=dict)
    model_id: str | None = None
    missing: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    growth: Mapping[str, GrowthCurve] = field(default_factory=dict)
    references: Mapping[str, Reference] = field(default_factory=dict)
    neurons: tuple[LayerNeurons, ...] = ()
    map: SuiteMap | None = None
    galleries: tuple[Gallery, ...] = ()
    fewer: FewerInputs | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def increase(self) -> dict[str, float] | None:
        """Return by how much the suite raised each value, where there was one before."""
        if self.before is None:
            return None
        return {name: value - self.before[name] for name, value in self.values.items()}

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with a schema version; numbers JSON does not know become null."""
        content = {"schema": SCHEMA, **asdict(self), "increase": self.increase}
        return _plain(content)  # type: ignore[no-any-return]

    def write(self, path: Place) -> None:
        """Write the result as JSON."""
        write_json(path, self.to_json())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value
