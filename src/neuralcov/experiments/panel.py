"""A panel: all criteria with all settings on one model, calibrated, and started from its training data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.core.layout import Layout
from neuralcov.core.ledger import Ledger, States
from neuralcov.coverage import Coverage
from neuralcov.experiments.settings import AnyCriterion, representatives, taught
from neuralcov.tap import unpack_batch

Values = dict[str, float]


class Panel:
    """Measures suites under many criteria in one pass, on top of the training data and on their own.

    Args:
        model: in eval mode.
        settings: the criteria.
        training: batches of training inputs, iterated over once.
        predict: see :class:`~neuralcov.coverage.Coverage`.
        predictions: whether the model's output tells classes.
        unpack: from a batch to ``(inputs, labels)``, where the usual reading does not fit.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Sequence[AnyCriterion],
        training: Iterable[Any],
        *,
        predictions: bool = True,
        unpack: Callable[[Any], tuple[Any, Any]] | None = None,
    ) -> None:
        self._predictions, self._unpack = predictions, unpack
        learner = Coverage(model, representatives(settings))
        kept: list[Activations] = []
        with _quiet():
            learner.calibrate(activations=_keeping(self._run(learner, training), kept), progress=False)
        self.criteria = tuple(taught(settings, learner.criteria))
        self._coverage = Coverage(model, self.criteria)
        assert learner.layout is not None
        self.layout: Layout = learner.layout
        ledger = self.empty()
        while kept:
            ledger.observe(kept.pop(0))
        self._training: States = ledger.states
        self.training_inputs = ledger.inputs
        self.training_values: Values = ledger.values()

    @property
    def names(self) -> tuple[str, ...]:
        """The criteria's names."""
        return tuple(criterion.name for criterion in self.criteria)

    def empty(self, criteria: Sequence[AnyCriterion] | None = None) -> Ledger:
        """A ledger that has seen nothing."""
        ledger = Ledger(criteria or self.criteria)
        ledger.layout = self.layout
        return ledger

    def on_top(self) -> Ledger:
        """A ledger that has seen the training data."""
        ledger = self.empty()
        ledger.replace(self._training, held=True)
        return ledger

    def run(self, batches: Iterable[Any]) -> Iterator[Activations]:
        """The activations of every batch."""
        return self._run(self._coverage, batches)

    def keep(self, batches: Iterable[Any]) -> Activations:
        """The activations of all batches as one."""
        return joined(list(self.run(batches)))

    def measure(self, batches: Iterable[Any], marks: Sequence[int] = ()) -> list[dict[str, Any]]:
        """Readings of a suite once it has reached each of the marks, and at its end.

        A reading holds the number of inputs, the increase over the training data, the values of the suite on its own,
        what stands beside these, and how many inputs criteria left out.
        """
        top, own = self.on_top(), self.empty()
        readings, seen = [], 0
        for batch in self.run(batches):
            top.observe(batch)
            own.observe(batch)
            seen += batch.size
            if seen in marks:
                readings.append(self._read(top, own, seen))
        if not readings or readings[-1]["inputs"] != seen:
            readings.append(self._read(top, own, seen))
        return readings

    def values_of(self, batches: Iterable[Activations], criteria: Sequence[AnyCriterion] | None = None) -> Values:
        """The values of a suite on its own, from activations."""
        own = self.empty(criteria)
        for batch in batches:
            own.observe(batch)
        return own.values()

    def _read(self, top: Ledger, own: Ledger, seen: int) -> dict[str, Any]:
        values = top.values()
        return {
            "inputs": seen,
            "increase": {name: values[name] - before for name, before in self.training_values.items()},
            "own": own.values(),
            "beside": own.beside(),
            "left out": _left_out(own),
        }

    def _run(self, coverage: Coverage, batches: Iterable[Any]) -> Iterator[Activations]:
        with coverage.tap():
            for item in batches:
                batch = unpack_batch(item, unpack=self._unpack)
                yield coverage.run(batch.inputs, batch.labels, predictions=self._predictions)[0]


def joined(parts: Sequence[Activations]) -> Activations:
    """Several batches as one."""
    first = parts[0]

    def together(pick: Callable[[Activations], torch.Tensor | None]) -> torch.Tensor | None:
        tensors = [pick(part) for part in parts]
        return None if any(tensor is None for tensor in tensors) else torch.cat([t for t in tensors if t is not None])

    def every(pick: Callable[[Activations], Any], names: Iterable[str]) -> dict[str, torch.Tensor]:
        return {name: torch.cat([pick(part)[name] for part in parts]) for name in names}

    present = {name for part in parts for name in part.present}
    return Activations(
        layers=every(lambda part: part.layers, first.layers),
        labels=together(lambda part: part.labels),
        predictions=together(lambda part: part.predictions),
        relevance=None if first.relevance is None else every(lambda part: part.relevance, first.layers),
        present=every(_present_everywhere, [name for name in first.layers if name in present]),
    )


def slices(batch: Activations, size: int, rows: torch.Tensor | None = None) -> Iterator[Activations]:
    """Some rows of activations in their order, in batches."""
    order = torch.arange(batch.size, device=batch.device) if rows is None else rows
    for part in torch.split(order, size):
        yield batch.take(part)


def _present_everywhere(part: Activations) -> dict[str, torch.Tensor]:
    everyone = torch.ones(part.size, dtype=torch.bool, device=part.device)
    return {name: part.present.get(name, everyone).to(part.device) for name in part.layers}


def _keeping(batches: Iterable[Activations], kept: list[Activations]) -> Iterator[Activations]:
    for batch in batches:
        kept.append(batch)
        yield batch


def _left_out(ledger: Ledger) -> dict[str, int]:
    try:
        return {finding.criterion: finding.inputs for finding in ledger.findings() if finding.inputs}
    except InputError:
        # A criterion that could place no input at all has the value 0, which is what there is to say.
        return {}


class _quiet(warnings.catch_warnings):  # noqa: N801
    """Findings are kept with the readings; warnings would only repeat them for every suite."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", CoverageWarning)
