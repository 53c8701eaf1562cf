"""Listen to the passes that a user's own code makes, and observe them or learn from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.coverage.batches import BatchReader
from neuralcov.coverage.calibrating import Lesson, refuse_late_calibration
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.suite_counts import with_decisions
from neuralcov.tap.listening import BatchOf, Ear, Heard
from neuralcov.tap.tokens import TokenRows

Counts = Callable[[nn.Module], bool]


class ListeningCoverage:
    """Observe the passes that a user's own code makes. Base of ``Coverage``."""

    _measurement: Measurement
    _reader: BatchReader
    _listening: _Listening | None = None

    @contextmanager
    def listen(
        self, *, calibrate: bool = False, counts: Counts | None = None, batch: BatchOf | None = None
    ) -> Iterator[Heard]:
        """Listen to the passes of the model that are made within the block; nothing is run for it.

        A pass is one call of the model itself, and every row of it is an input: so are those of every step of
        ``generate()``. It is observed when the next pass begins or the block ends, and ``labels`` in between
        belongs to it. Modes, gradients and autocast stay as they are. A block that ends by an exception observes all
        passes but the last.

        Args:
            calibrate: learn from the passes, as ``calibrate`` does from training data.
            counts: from the model to whether the call of it that begins is a pass, for frameworks that call the module
                for more than its forward pass; by default every call is one.
            batch: where the tensors that the model is called with disagree about the number of inputs, as those of
                graphs do: the name of the argument with one row per input, or a function from the arguments to the
                number.

        Returns:
            A block that gives what it has heard: ``passes``, ``inputs``, layers that were ``skipped``, and more.
        """
        if self._listening is not None:
            raise InputError("this coverage is listening already: end that block first")
        listening = _Listening(self._measurement, self._reader, calibrate=calibrate, counts=counts, batch=batch)
        self._listening = listening
        try:
            with listening.open() as heard:
                yield heard
        finally:
            self._listening = None
        self._measurement.warn(of_outputs=True)

    @property
    def unlabelled(self) -> int:
        """How many inputs the pass that was heard last has, if it has no labels yet, otherwise 0."""
        return 0 if self._listening is None else self._listening.unlabelled

    def labels(self, labels: Any) -> None:
        """Give the labels of the pass that was heard last.

        Args:
            labels: one class per input of that pass; targets of any other form are not used.
        """
        if self._listening is None:
            raise InputError("labels without a block that listens: call labels(y) within `with cov.listen():`")
        self._listening.label(labels)


class _Listening:
    """Listen in one block: keep each pass until its labels may have come, then use it."""

    def __init__(
        self,
        measurement: Measurement,
        reader: BatchReader,
        *,
        calibrate: bool,
        counts: Counts | None,
        batch: BatchOf | None,
    ) -> None:
        self._measurement, self._reader = measurement, reader
        self._collection = measurement.collection
        self._tap = reader.tap(hint=": pass the activations to update")
        if calibrate:
            refuse_late_calibration(measurement)
        self._lesson = Lesson(measurement) if calibrate else None
        needs = self._collection.needs
        self._asked = "predictions" in needs or self._collection.wants_predictions
        self._waiting: Activations | None = None
        self._rows: TokenRows | None = None
        self._ear = Ear(
            self._tap,
            begins=self._use,
            ends=self._take,
            relevance="relevance" in needs,
            predictions="predictions" in needs,
            # For accuracy and classes; outputs spread over ranks would have to be put together first.
            readable=self._asked or not self._tap.spread,
            counts=_all_count if counts is None else counts,
            batch=batch,
        )

    @property
    def unlabelled(self) -> int:
        """How many inputs the pass that waits has, if it has no labels yet, otherwise 0."""
        return 0 if self._waiting is None or self._waiting.labels is not None else self._inputs_of(self._waiting)

    def _inputs_of(self, batch: Activations) -> int:
        return batch.size if self._rows is None else self._rows.size

    @contextmanager
    def open(self) -> Iterator[Heard]:
        """Listen until the block ends."""
        ours = self._measurement
        ours.seen.end_run()
        self._say_compiled()
        with self._reader.first():
            with self._ear.open() as heard:
                yield heard
            self._use()
            if heard.passes == heard.empty:
                raise InputError(_nothing_heard(heard))
            if self._lesson is not None:
                self._lesson.finish()
            else:
                ours.heard.add(heard)
        ours.seen.end_run()

    def label(self, labels: Any) -> None:
        """Give the pass that waits its labels."""
        if self._waiting is None:
            raise InputError("labels before the first pass: call labels(y) after the pass that they belong to")
        if self._waiting.labels is not None:
            raise InputError("labels are given twice for one pass: call labels(y) once after each pass")
        self._waiting = self._labelled(self._waiting, labels)

    def _labelled(self, batch: Activations, labels: Any) -> Activations:
        found = self._reader.read_labels(labels)
        if found is None:
            return batch
        size = self._inputs_of(batch)
        if found.shape[0] != size:
            raise InputError(
                f"{counted(found.shape[0], 'label')} for {counted(size, 'input')}: expected one label per input"
            )
        home = next(iter(batch.layers.values())).device
        plain: Tensor = (found.clone() if found.is_inference() else found).to(home)
        return replace(batch, labels=plain if self._rows is None else self._rows.repeat(plain))

    def _take(self, batch: Activations, labels: Any, rows: TokenRows | None) -> None:
        """Keep a pass that has just ended, with the labels it was called with."""
        if self._lesson is not None:
            self._lesson.note_weights()
        else:
            # Now, not when it is observed: by then a step of training may have changed the weights.
            self._measurement.provenance.watch(empty=self._collection.empty, whole=True)
        self._rows = rows
        self._waiting = batch if labels is None else self._labelled(batch, labels)

    def _use(self) -> None:
        """Observe the pass that waits, or learn from it."""
        batch, self._waiting = self._waiting, None
        if batch is None:
            return
        if batch.labels is None:
            self._require_no_labels()
            if self._tap.decisions.told and not self._asked:
                # As where a loader gives none: decisions of others serve to tell which are right.
                batch = replace(batch, predictions=None)
        batch = with_decisions(self._reader.in_layout_order(batch), asked=self._asked)
        if self._lesson is not None:
            self._lesson.add(batch)
        else:
            self._collection.observe(batch, kept=True)

    def _require_no_labels(self) -> None:
        for criterion in self._collection.criteria:
            if "labels" in criterion.needs:
                raise InputError(f"{criterion.name} needs labels: call labels(y) after each pass that is heard")

    def _say_compiled(self) -> None:
        warned = self._measurement.warned
        if self._tap.compiled and "compiled" not in warned:
            warned.add("compiled")
            said = "the model is compiled: while it is listened to, its original module runs in its place"
            warnings.warn(said, CoverageWarning, stacklevel=6)


def _all_count(model: nn.Module) -> bool:
    return True


def _nothing_heard(heard: Heard) -> str:
    """Return why a block heard nothing, as far as that is known."""
    if heard.empty:
        return (
            f"{counted(heard.empty, 'pass')} reached none of the layers: choose layers that they run "
            f"through, with layers="
        )
    if heard.outside:
        layer = next(iter(heard.outside))
        return (
            f"no pass of the model was heard: layers such as {layer!r} were called, but not by the model itself; "
            "call the model that the coverage was built with, or build one for the part that is called"
        )
    failed = f" ({heard.failed} raised an exception)" if heard.failed else ""
    return f"no pass of the model was heard{failed}: call the model that the coverage was built with in the block"
