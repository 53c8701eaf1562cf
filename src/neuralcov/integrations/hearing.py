"""One evaluation after another, each heard from its start to its end: what callbacks and handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.listening import Counts
from neuralcov.coverage.store import Place
from neuralcov.integrations.states import reduce_states, world_size
from neuralcov.integrations.trackers import metrics_of

Labels = Callable[[Any], Any]


def labels_of(batch: Any) -> Any:
    """Return the labels of a batch, as ``assess`` reads them: the second of a pair, or those of a mapping.

    >>> labels_of(("images", "digits")), labels_of({"input_ids": 1, "labels": 2}), labels_of("images")
    ('digits', 2, None)
    """
    if isinstance(batch, Mapping):
        return batch.get("labels")
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    return batch[1] if pair and not isinstance(batch[1], Mapping) else None


class Hearing:
    """Listen to one evaluation after another.

    Args:
        coverage: what listens; every evaluation starts with an empty one.
        calibration: training data or a saved calibration, from which to learn anew before every evaluation: the
            weights may have changed.
        labels: from a batch to one class per input, ``None`` where there are none.
        counts: as for ``Coverage.listen``.
    """

    def __init__(
        self,
        coverage: Coverage,
        *,
        calibration: Iterable[Any] | Place | None = None,
        labels: Labels = labels_of,
        counts: Counts | None = None,
    ) -> None:
        self.coverage = coverage
        self._calibration, self._labels, self._counts = calibration, labels, counts
        self._block: ExitStack | None = None
        self._heard: Any = None
        self._passes = 0

    @property
    def running(self) -> bool:
        """Whether an evaluation is being heard."""
        return self._block is not None

    def start(self) -> None:
        """Begin to listen, with an empty coverage."""
        self.drop()
        self.coverage.reset()
        if self._calibration is not None:
            self.coverage.calibrate(self._calibration, progress=False)
            # Frameworks write to weights without changing them, as DDP does when it sends out those of rank 0: with
            # their digest known, they are told by it.
            self.coverage.provenance()
        block = ExitStack()
        self._heard = block.enter_context(self.coverage.listen(counts=self._counts))
        self._block, self._passes = block, 0

    def batch_ended(self, batch: Any, *, if_they_fit: bool = False) -> None:
        """Give the last pass the labels of its batch, if the batch was run and its labels were not among its inputs.

        Args:
            batch: as the loader gave it.
            if_they_fit: leave out labels of another number than the last pass has inputs, instead of refusing them.
        """
        if self._block is None or self._heard.passes == self._passes:
            return
        self._passes = self._heard.passes
        if not self.coverage.unlabelled or self._heard.passes == self._heard.empty:
            return
        labels = self._labels(batch)
        if if_they_fit and (not hasattr(labels, "__len__") or len(labels) != self.coverage.unlabelled):
            return
        if labels is not None:
            self.coverage.labels(labels)

    def stop(self) -> dict[str, float]:
        """End the evaluation, merge the ranks, and return the metrics."""
        block, self._block = self._block, None
        assert block is not None
        if self._heard.passes == self._heard.empty and world_size() > 1:
            # A rank may be without a batch, as long as another has some: the others wait for it.
            _leave(block)
        else:
            block.close()
        reduce_states(self.coverage)
        if not self.coverage.inputs:
            raise InputError("no rank heard a pass of the model: is it the one that the evaluation runs?")
        return metrics_of(self.coverage)

    def drop(self) -> None:
        """End an evaluation that was interrupted; the next start drops what it observed."""
        block, self._block = self._block, None
        if block is not None:
            _leave(block)


class _InterruptedError(Exception):
    """End a block from outside, as an exception in it does."""


def _leave(block: ExitStack) -> None:
    """Leave a block as an exception does: hooks are gone, and nothing is asked of what was heard."""
    block.__exit__(_InterruptedError, _InterruptedError(), None)
