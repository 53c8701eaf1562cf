"""Run the model and observe nothing; ask what inputs would add, how surprising they are, and which to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.coverage import assessing
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.data import CoverageData
from neuralcov.coverage.proposal import Proposal
from neuralcov.coverage.running import Run, run_all
from neuralcov.results import InputTable
from neuralcov.tap.inputs import Lengths


class JudgingCoverage(CoverageData):
    """Judge inputs by what was measured so far."""

    _reader: BatchReader

    def run(
        self, inputs: Any, labels: Any = None, *, lengths: Any = None, predictions: bool = True
    ) -> tuple[Activations, Any]:
        """Run the model once and observe nothing.

        Args:
            inputs: as for ``update``.
            labels: see there.
            lengths: see there.
            predictions: whether to read off the classes the model chose.

        Returns:
            The activations, for ``activations=`` of the other methods, and the model's output.
        """
        return self._reader.run(inputs, labels, lengths, predictions=predictions)

    def runs(
        self,
        data: Iterable[Any],
        *,
        lengths: Lengths | None = None,
        progress: bool | None = None,
        title: str = "running",
        known: Callable[[Run], int] | None = None,
        relevance: bool = False,
    ) -> Iterator[Run]:
        """Yield every batch of a loader with its activations and the model's output; nothing is observed.

        Args:
            data: a loader of batches.
            lengths: as for ``assess``.
            progress: show a bar; by default only in a terminal.
            title: what the bar says.
            known: asked after the first batch how many of the first inputs need not be run: later batches among these
                come without activations.
            relevance: whether to compute relevance, where a criterion needs it.
        """
        return run_all(
            self._reader, data, lengths=lengths, progress=progress, title=title, known=known, relevance=relevance
        )

    def gain(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> dict[str, Tensor]:
        """Return, by criterion, how far each input alone would move the value. Nothing changes.

        In place of a batch, ``inputs`` may be a loader of batches; then ``lengths`` is what ``assess`` takes.
        """
        gain = self._measurement.collection.gain
        return self._reader.feed_all(gain, _joined, inputs, labels, activations, predictions, lengths)

    def scores(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> dict[str, Tensor]:
        """Return, by criterion, the surprise of each input, for the criteria that have one; of a loader's as well."""
        scores = self._measurement.collection.scores
        return self._reader.feed_all(scores, _joined, inputs, labels, activations, predictions, lengths)

    def propose(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
    ) -> Proposal:
        """Return the gain of each input, with the chance to commit some of them without running the model again."""
        propose = partial(Proposal.of, self._measurement.collection)
        return self._reader.feed(propose, inputs, labels, activations, predictions, lengths)

    def admit(
        self,
        inputs: Any = None,
        labels: Any = None,
        *,
        activations: Mapping[str, Any] | Activations | None = None,
        predictions: Any = None,
        lengths: Any = None,
        min_gain: float = 0.0,
    ) -> Tensor:
        """Observe inputs in order, each only if some criterion gains more than ``min_gain`` on the state it meets.

        Inputs that a criterion excludes are counted, and admitted only if another one gains by them. If nothing is
        admitted, nothing but these counts changes, and proposals made before stay good.

        Args:
            inputs: as for ``update``, like the rest; or a loader of batches.
            labels: see there.
            activations: see there.
            predictions: see there.
            lengths: see there.
            min_gain: what the gain must exceed; below 0, inputs that do not raise the value, or lower it, are
                admitted as well.

        Returns:
            Which inputs were admitted, ``(batch,)``.
        """
        admit = partial(self._measurement.collection.admit, min_gain=min_gain)
        return self._reader.feed_all(admit, torch.cat, inputs, labels, activations, predictions, lengths)

    def judge(self, data: Iterable[Any], *, lengths: Lengths | None = None, progress: bool | None = None) -> InputTable:
        """Return a table of inputs with their names, gains, scores, and who excludes them. Nothing changes.

        Args:
            data: a loader of batches.
            lengths: as for ``assess``.
            progress: show a bar; by default only in a terminal.
        """
        return assessing.judge(self._measurement, self._reader, data, lengths=lengths, progress=progress)


def _joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Join what was found of several batches, by criterion."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
