"""A panel: all criteria with all settings on one model, calibrated, and started from its training data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import NEVER_FALLS
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.layout import Layout
from neuralcov.coverage.coverage import Coverage
from neuralcov.tap import unpack_batch
from neuralcov.tap.inputs import requires_two_inputs
from neuralcov_lab.experiments.settings import AnyCriterion, representatives, taught
from neuralcov_lab.experiments.tally import Tally, Values


@dataclass(frozen=True)
class Reading:
    """How a model is run: whether its output tells classes, and how batches are taken apart."""

    predictions: bool = True
    unpack: Callable[[Any], tuple[Any, Any]] | None = None

    def run(self, coverage: Coverage, batches: Iterable[Any]) -> Iterator[Activations]:
        """The activations of every batch."""
        two_inputs = coverage.model is not None and requires_two_inputs(coverage.model)
        with coverage.tap():
            for item in batches:
                batch = unpack_batch(item, self.unpack, two_inputs=two_inputs)
                yield coverage.run(batch.inputs, batch.labels, predictions=self.predictions)[0]


class Panel:
    """Measures suites under many criteria in one pass, on top of the training data and on their own.

    Args:
        coverage: holds the model and the criteria, which have learnt.
        training: what has seen the training data.
        reading: how the model is run.
    """

    def __init__(self, coverage: Coverage, training: Tally, reading: Reading) -> None:
        self._coverage, self._training, self._reading = coverage, training, reading
        self._start = training.states
        self.training_inputs = training.inputs
        self.training_values: Values = training.values()

    @classmethod
    def calibrated(
        cls,
        model: nn.Module,
        settings: Sequence[AnyCriterion],
        training: Iterable[Any],
        *,
        chunk: int | None = None,
        reading: Reading | None = None,
    ) -> Panel:
        """A panel that has learnt from training data, and has seen it.

        Args:
            model: in eval mode.
            settings: the criteria.
            training: batches of training inputs, iterated over once.
            chunk: inputs at a time for criteria that care how inputs are batched; ``None``: whole batches.
            reading: how the model is run.
        """
        reading = reading or Reading()
        learner = Coverage(model, representatives(settings))
        kept: list[Activations] = []
        with quiet():
            learner.calibrate(activations=_keeping(reading.run(learner, training), kept), progress=False)
        criteria = taught(settings, learner.criteria)
        assert learner.layout is not None
        tally = Tally(criteria, learner.layout, chunk)
        while kept:
            tally.observe(kept.pop(0))
        return cls(Coverage(model, criteria), tally, reading)

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

    def empty(self, criteria: Sequence[AnyCriterion] | None = None, chunk: int | None = None) -> Tally:
        """A tally that has seen nothing; by default of all criteria, in the panel's chunks."""
        return Tally(criteria or self.criteria, self.layout, chunk or self._training.chunk)

    def on_top(self) -> Tally:
        """A tally that has seen the training data."""
        tally = self.empty()
        tally.start_from(self._start)
        return tally

    def run(self, batches: Iterable[Any]) -> Iterator[Activations]:
        """The activations of every batch."""
        return self._reading.run(self._coverage, batches)

    def keep(self, batches: Iterable[Any]) -> Activations:
        """The activations of all batches as one."""
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
        """The values of a suite on its own, from activations."""
        own = self.empty(criteria, chunk)
        for batch in batches:
            own.observe(batch)
        return own.values()

    def _read(self, top: Tally, own: Tally, seen: int) -> dict[str, Any]:
        values = top.values()
        return {
            "inputs": seen,
            "increase": {name: values[name] - before for name, before in self.training_values.items()},
            "own": own.values(),
            "beside": own.details(),
            "left out": own.left_out(),
        }


def slices(batch: Activations, size: int, rows: torch.Tensor | None = None) -> Iterator[Activations]:
    """Some rows of activations in their order, in batches."""
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
