"""What ``assess`` keeps of inputs: the table, what they look like, where they lie on the map, which are nearest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.sections.suite_map import MapRecorder, TrainingMap
from neuralcov.coverage.sections.views import ViewStore
from neuralcov.coverage.table_builder import TableBuilder
from neuralcov.results.galleries import View, rows_to_show, surprising_rows, wrong_inputs
from neuralcov.results.input_table import InputTable
from neuralcov.results.sections import SuiteMap

_NEAREST, _NAMED = 12, 3


class InputKeeper:
    """Keep what a report shows of inputs, batch by batch.

    Args:
        collection: the criteria and their states.
        learnt: the map of training data, where there is one.
        preprocessing: what was done to pixels.
        gains: names of criteria whose gains to note.
    """

    def __init__(
        self,
        collection: CriterionCollection,
        learnt: TrainingMap | None,
        preprocessing: Any,
        gains: Collection[str] = (),
    ) -> None:
        self._builder = TableBuilder(collection, gains=gains)
        self._views = ViewStore(preprocessing)
        self._map = None if learnt is None else MapRecorder(learnt)
        self._rows = 0

    def add(self, inputs: Any, batch: Activations) -> None:
        """Note a batch that was not observed yet."""
        self._builder.add(batch)
        if self._map is not None:
            self._map.add(batch)
        if inputs is not None:
            self._views.add(inputs, self._rows, batch.size, lambda: rows_to_show(self.table(), {}))
        self._rows += batch.size

    def table(self) -> InputTable:
        """Return the table of inputs so far."""
        return self._builder.table()

    def map(self, table: InputTable) -> SuiteMap | None:
        """Return where the suite lies beside training data."""
        if self._map is None:
            return None
        column = next((name for name in ("label", "prediction") if name in table.columns), None)
        classes = None if column is None else ["" if one is None else str(int(one)) for one in table[column]]
        named = {row: str(table["id"][row]) for row in surprising_rows(table)}
        return self._map.finish(classes, wrong_inputs(table), named)

    def views(self, table: InputTable, nearest: Mapping[int, str]) -> dict[int, View]:
        """Return what the inputs look like that are shown."""
        return self._views.views(rows_to_show(table, nearest))


def nearest_to_uncovered(collection: CriterionCollection, layout: Layout, peaks: Tensor) -> dict[int, str]:
    """Return the inputs that gave the highest outputs of neurons nobody covered, with what these are.

    Args:
        collection: the criteria; those count that know of uncovered neurons.
        layout: the layers.
        peaks: by neuron, the input that gave its highest output.
    """
    bare = collection.uncovered()
    name = max(bare, key=lambda one: sum(map(len, bare[one].values())), default=None)
    if name is None or not bare[name]:
        return {}
    found: dict[int, list[tuple[str, int]]] = {}
    starts, total = {}, 0
    for layer, width in layout.widths.items():
        starts[layer], total = total, total + width
    for layer, numbers in bare[name].items():
        for number, row in zip(numbers, peaks[[starts[layer] + n for n in numbers]].tolist(), strict=True):
            if row >= 0:
                found.setdefault(row, []).append((layer, number))
    most = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:_NEAREST]
    return {row: _sentence(name, neurons) for row, neurons in most}


def _sentence(criterion: str, neurons: Sequence[tuple[str, int]]) -> str:
    named = ", ".join(f"{layer} {number}" for layer, number in neurons[:_NAMED])
    rest = " …" if len(neurons) > _NAMED else ""
    return f"highest in {counted(len(neurons), 'neuron')} that {criterion} lacks: {named}{rest}"
