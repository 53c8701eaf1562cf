"""One evaluation after another, each heard from its start to its end: what callbacks and handlers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.store import AnyPath
from neuralcov.integrations.states import reduce_states, world_size
from neuralcov.integrations.trackers import metrics_of

Labels = Callable[[Any], Any]


def labels_of_pair(batch: Any) -> Any:
    """Return the second of a pair; models that take a mapping are called with their labels, or have none.

    >>> labels_of_pair(("images", "digits")), labels_of_pair({"input_ids": 1, "labels": 2})
    ('digits', None)
    """
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    return batch[1] if pair and not isinstance(batch[1], Mapping) else None


class Hearing:
    """Listen to one evaluation after another.

    Args:
        coverage: what listens; every evaluation starts with an empty one.
        calibration: training data or a saved calibration, from which to learn anew before every evaluation: the
            weights may have changed.
        labels: from a batch to one class per input, ``None`` where there are none.
    """

    def __init__(
        self,
        coverage: Coverage,
        *,
        calibration: Iterable[Any] | AnyPath | None = None,
        labels: Labels = labels_of_pair,
    ) -> None:
        self.coverage = coverage
        self._calibration = calibration
        self._labels = labels
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
        block = ExitStack()
        self._heard = block.enter_context(self.coverage.listen())
        self._block, self._passes = block, 0

    def batch_ended(self, batch: Any) -> None:
        """Give the last pass the labels of its batch, if the batch was run at all."""
        if self._block is None or self._heard.passes == self._passes:
            return
        self._passes = self._heard.passes
        labels = self._labels(batch)
        if labels is not None:
            self.coverage.labels(labels)

    def stop(self) -> dict[str, float]:
        """End the evaluation, merge the ranks, and return the metrics."""
        self._close()
        reduce_states(self.coverage)
        if not self.coverage.inputs:
            raise InputError("no rank heard a pass of the model: is it the one that the evaluation runs?")
        return metrics_of(self.coverage)

    def drop(self) -> None:
        """End an evaluation that was interrupted; what it observed is dropped by the next start."""
        if self._block is not None:
            self._close(silent=True)

    def _close(self, *, silent: bool = False) -> None:
        block, self._block = self._block, None
        assert block is not None
        try:
            block.close()
        except InputError:
            # A rank without a batch hears nothing, which is fine as long as another does: the others wait for it.
            heard = self._heard.passes > self._heard.empty
            if heard or not (silent or world_size() > 1):
                raise
