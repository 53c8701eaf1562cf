"""A handler for engines of PyTorch-Ignite that listens to an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from neuralcov.core.arguments import require
from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.store import Place
from neuralcov.integrations.hearing import Hearing, Labels, labels_of


class CoverageHandler:
    """Measure what the epochs of an engine cover, by listening: no further forward pass.

    Values stand in ``engine.state.metrics`` at the end of each epoch, merged over all ranks.

    Args:
        model: the model that the engine calls.
        criteria: what to measure.
        calibration: training data or a saved calibration, from which to learn before every epoch.
        labels: from a batch to one class per input; by default the second of a pair, or ``labels`` of a mapping.
        prefix: what every key begins with.
        options: further arguments of ``Coverage``, such as ``layers``.
    """

    def __init__(
        self,
        model: nn.Module,
        criteria: Sequence[AnyCriterion],
        *,
        calibration: Iterable[Any] | Place | None = None,
        labels: Labels = labels_of,
        prefix: str = "",
        **options: Any,
    ) -> None:
        self._events = require("ignite.engine", "coverage handlers", extra="ignite").Events
        self.coverage = Coverage(model, criteria, **options)
        self._hearing = Hearing(self.coverage, calibration=calibration, labels=labels)
        self._prefix = prefix

    def attach(self, engine: Any) -> None:
        """Listen to every epoch of an engine.

        Args:
            engine: one that evaluates; attach loggers of its metrics afterwards.
        """
        events = self._events
        engine.add_event_handler(events.EPOCH_STARTED, self._start)
        engine.add_event_handler(events.ITERATION_COMPLETED, self._batch)
        engine.add_event_handler(events.EPOCH_COMPLETED, self._stop)
        engine.add_event_handler(events.COMPLETED, self._end)
        engine.add_event_handler(events.EXCEPTION_RAISED, self._drop)

    def _start(self, engine: Any) -> None:
        self._hearing.start()

    def _batch(self, engine: Any) -> None:
        self._hearing.batch_ended(engine.state.batch)

    def _stop(self, engine: Any) -> None:
        if not self._hearing.running:
            # A handler of the user's own has dealt with an exception, and the engine went on.
            return
        found = self._hearing.stop()
        engine.state.metrics.update({f"{self._prefix}{key}": value for key, value in found.items()})

    def _end(self, engine: Any) -> None:
        # An epoch that was terminated has no end of its own.
        self._hearing.drop()

    def _drop(self, engine: Any, error: BaseException) -> None:
        self._hearing.drop()
        # An engine with a handler leaves it to the handlers to raise or not: where ours is alone, it does as the engine
        # would without it.
        if len(engine._event_handlers[self._events.EXCEPTION_RAISED]) == 1:
            raise error
