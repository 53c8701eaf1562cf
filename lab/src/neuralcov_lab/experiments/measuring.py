"""Measure suites: many criteria on one model, calibrated, started from its training data, and fed as each wants it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from neuralcov import LCC, Activations, Coverage, CoverageWarning
from neuralcov.core.criterion import NEVER_FALLS, SPLIT_FREE
from neuralcov.core.errors import InputError
from neuralcov.core.layout import Layout
from neuralcov.coverage.collection import CriterionCollection, SharedStates
from neuralcov.tap import unpack_batch
from neuralcov.tap.inputs import requires_two_inputs
from neuralcov_lab.experiments.settings import AnyCriterion, representatives, taught

Values = dict[str, float]


@dataclass(frozen=True)
class ModelReader:
    """Run a model: knows whether its output tells classes, and how batches are taken apart."""

    predictions: bool = True
    unpack: Callable[[Any], tuple[Any, Any]] | None = None

    def run(self, coverage: Coverage, batches: Iterable[Any]) -> Iterator[Activations]:
        """Return the activations of every batch."""
        two_inputs = coverage.model is not None and requires_two_inputs(coverage.model)
        with coverage.tap():
            for item in batches:
                batch = unpack_batch(item, self.unpack, two_inputs=two_inputs)
                yield coverage.run(batch.inputs, batch.labels, predictions=self.predictions)[0]


class CalibratedCriteria:
    """Measure suites under many criteria in one pass, on top of the training data and on their own.

    Args:
        coverage: holds the model and the criteria, which have learnt.
        training: what has seen the training data.
        reader: runs the model.
    """

    def __init__(self, coverage: Coverage, training: ChunkedCollection, reader: ModelReader) -> None:
        self._coverage, self._training, self._reader = coverage, training, reader
        self._start = training.states
        self.training_inputs = training.inputs
        self.training_values: Values = training.values()

    @classmethod
    def learn(
        cls,
        model: nn.Module,
        settings: Sequence[AnyCriterion],
        training: Iterable[Any],
        *,
        chunk: int | None = None,
        reader: ModelReader | None = None,
    ) -> CalibratedCriteria:
        """Let criteria learn from training data, and observe it.

        Args:
            model: in eval mode.
            settings: the criteria.
            training: batches of training inputs, iterated over once.
            chunk: inputs at a time for criteria that care how inputs are batched; ``None``: whole batches.
            reader: runs the model.
        """
        reader = reader or ModelReader()
        learner = Coverage(model, representatives(settings))
        kept: list[Activations] = []
        with quiet():
            learner.calibrate(activations=_keeping(reader.run(learner, training), kept), progress=False)
        criteria = taught(settings, learner.criteria)
        assert learner.layout is not None
        collection = ChunkedCollection(criteria, learner.layout, chunk)
        while kept:
            collection.observe(kept.pop(0))
        return cls(Coverage(model, criteria), collection, reader)

    @property
    def criteria(self) -> tuple[AnyCriterion, ...]:
        """All settings of all criteria."""
        return self._coverage.criteria

    @property
    def layout(self) -> Layout:
        """The layers."""
        return self._training.layout

    @property
    def names(self) -> tuple[str, ...]:
        """The criteria's names."""
        return tuple(criterion.name for criterion in self.criteria)

    def empty(self, criteria: Sequence[AnyCriterion] | None = None, chunk: int | None = None) -> ChunkedCollection:
        """Return a collection that has seen nothing; by default of all criteria, in chunks of the same size."""
        return ChunkedCollection(criteria or self.criteria, self.layout, chunk or self._training.chunk)

    def on_top(self) -> ChunkedCollection:
        """Return a collection that has seen the training data."""
        collection = self.empty()
        collection.start_from(self._start)
        return collection

    def run(self, batches: Iterable[Any]) -> Iterator[Activations]:
        """Return the activations of every batch."""
        return self._reader.run(self._coverage, batches)

    def keep(self, batches: Iterable[Any]) -> Activations:
        """Return the activations of all batches as one."""
        return Activations.cat(list(self.run(batches)))

    def measure(
        self, batches: Iterable[Any], marks: Sequence[int] = (), alone: int | None = None
    ) -> list[dict[str, Any]]:
        """Readings of a suite once it has reached each of the marks, and at its end.

        A reading holds the number of inputs, the increase over the training data, the values of the suite on its own,
        what stands beside these, and how many inputs criteria left out.

        Args:
            batches: the suite.
            marks: numbers of inputs at which batches end.
            alone: after so many inputs the suite on its own is followed only by criteria that can fall: the others
                would merely tell again that more is more.
        """
        top, own = self.on_top(), self.empty()
        readings, seen = [], 0
        for batch in self.run(batches):
            if alone is not None and seen >= alone:
                own.keep(lambda criterion: NEVER_FALLS not in criterion.promises)
            top.observe(batch)
            own.observe(batch)
            seen += batch.size
            if seen in marks:
                readings.append(self._read(top, own, seen))
        if not readings or readings[-1]["inputs"] != seen:
            readings.append(self._read(top, own, seen))
        return readings

    def values_of(
        self,
        batches: Iterable[Activations],
        criteria: Sequence[AnyCriterion] | None = None,
        chunk: int | None = None,
    ) -> Values:
        """Return the values of a suite on its own, from activations."""
        own = self.empty(criteria, chunk)
        for batch in batches:
            own.observe(batch)
        return own.values()

    def _read(self, top: ChunkedCollection, own: ChunkedCollection, seen: int) -> dict[str, Any]:
        values = top.values()
        return {
            "inputs": seen,
            "increase": {name: values[name] - before for name, before in self.training_values.items()},
            "own": own.values(),
            "beside": own.details(),
            "left out": own.excluded(),
        }


def slices(batch: Activations, size: int, rows: torch.Tensor | None = None) -> Iterator[Activations]:
    """Return some rows of activations in their order, in batches."""
    order = torch.arange(batch.size, device=batch.device) if rows is None else rows
    for part in torch.split(order, size):
        yield batch.take(part)


def _keeping(batches: Iterable[Activations], kept: list[Activations]) -> Iterator[Activations]:
    for batch in batches:
        kept.append(batch)
        yield batch


@contextmanager
def quiet() -> Iterator[None]:
    """Findings are kept with the readings; warnings would only repeat them for every suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        yield


class ChunkedCollection:
    """Hold criteria and their states; give those that care how inputs are batched chunks of one size."""

    def __init__(self, criteria: Sequence[AnyCriterion], layout: Layout, chunk: int | None) -> None:
        self.layout, self.chunk = layout, chunk
        self._order = [criterion.name for criterion in criteria]
        criteria, self._readers = _observed_once(criteria)
        careful = [c for c in criteria if chunk is not None and SPLIT_FREE not in c.promises]
        usual = [criterion for criterion in criteria if criterion not in careful]
        self._collections = [
            (_collection(some, layout), chunked) for some, chunked in ((usual, False), (careful, True)) if some
        ]

    @property
    def states(self) -> tuple[SharedStates | None, ...]:
        """What ``start_from`` takes; not overwritten from here on."""
        return tuple(collection.share() for collection, _ in self._collections)

    @property
    def inputs(self) -> int:
        """How many inputs were observed."""
        return self._collections[0][0].inputs

    def start_from(self, states: tuple[SharedStates | None, ...]) -> None:
        """Go on from the states of another collection of the same criteria."""
        for (collection, _), state in zip(self._collections, states, strict=True):
            collection.adopt(state)

    def observe(self, batch: Activations) -> None:
        """Observe a batch."""
        for collection, chunked in self._collections:
            if chunked and self.chunk is not None:
                for start in range(0, batch.size, self.chunk):
                    collection.observe(batch.take(slice(start, min(start + self.chunk, batch.size))))
            else:
                collection.observe(batch)

    def keep(self, wanted: Callable[[AnyCriterion], bool]) -> None:
        """Go on with some of the criteria only."""
        found = []
        for collection, chunked in self._collections:
            chosen = [index for index, criterion in enumerate(collection.criteria) if wanted(criterion)]
            if chosen:
                assert collection.layout is not None
                rest, states = (
                    _collection([collection.criteria[index] for index in chosen], collection.layout),
                    collection.share(),
                )
                rest.adopt(None if states is None else tuple(states[index] for index in chosen))
                found.append((rest, chunked))
        self._collections = found

    def values(self) -> Values:
        """Return the values by criterion, in the order given."""
        found = {name: value for collection, _ in self._collections for name, value in collection.values().items()}
        for collection, _ in self._collections:
            for criterion, state in zip(collection.criteria, collection.states, strict=True):
                for reader in self._readers.get(criterion.name, ()):
                    found[reader.name] = float(reader.value(state))
        return {name: found[name] for name in self._order if name in found}

    def details(self) -> dict[str, dict[str, float]]:
        """Return the figures beside the values."""
        return {name: figures for collection, _ in self._collections for name, figures in collection.details().items()}

    def excluded(self) -> dict[str, int]:
        """Return, by criterion, how many inputs it excluded."""
        found: dict[str, int] = {}
        for collection, _ in self._collections:
            # A criterion that could place no input at all has the value 0, which is what there is to say.
            with suppress(InputError):
                found |= {finding.criterion: finding.inputs for finding in collection.findings() if finding.inputs}
        return found


def _observed_once(criteria: Sequence[AnyCriterion]) -> tuple[list[AnyCriterion], dict[str, list[AnyCriterion]]]:
    """Return the criteria to observe with, and by their names those that only read the same state in another way.

    LCC's ways to bring layers together read one state of kinds.
    """
    observed: dict[str, AnyCriterion] = {}
    readers: dict[str, list[AnyCriterion]] = {}
    for criterion in criteria:
        key = replace(criterion, over="median").name if isinstance(criterion, LCC) else criterion.name
        if key in observed:
            readers.setdefault(observed[key].name, []).append(criterion)
        else:
            observed[key] = criterion
    return list(observed.values()), readers


def _collection(criteria: Sequence[AnyCriterion], layout: Layout) -> CriterionCollection:
    collection = CriterionCollection(criteria)
    collection.layout = layout
    return collection
