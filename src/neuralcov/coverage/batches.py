"""What a user gives, read as batches: inputs to run a model on, activations, loaders of either."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CoverageWarning, InputError
from neuralcov.coverage.arrays import as_activations, in_layout_order
from neuralcov.coverage.cuda_graph import AUTO, GraphedUpdates
from neuralcov.coverage.halving import Halving
from neuralcov.coverage.loaders import is_loader, tracked
from neuralcov.coverage.measurement import Measurement
from neuralcov.coverage.suite_counts import with_decisions
from neuralcov.coverage.watcher import Watcher
from neuralcov.tap import Batch, Tap, unpack_batch
from neuralcov.tap.inputs import (
    Lengths,
    Unpack,
    as_labels,
    requires_two_inputs,
    unused_part,
    usable_labels,
    with_lengths,
)
from neuralcov.tap.signatures import form_of

T = TypeVar("T")


class BatchReader:
    """Turn what a user gives into activations of the layers that a coverage measures.

    Args:
        measurement: what the batches are for; its first batch shows the layers.
        unpack: from what a loader yields to inputs and labels, where the usual reading does not fit.
        metadata: keys of mappings that hold metadata.
        cuda_graph: whether to record updates as CUDA graphs, or ``"auto"`` where that is safe and helps.
    """

    def __init__(
        self,
        measurement: Measurement,
        unpack: Unpack | None = None,
        *,
        metadata: Sequence[str] = (),
        cuda_graph: bool | str = AUTO,
    ) -> None:
        if cuda_graph not in (True, False, AUTO):
            raise InputError(f"cuda_graph={cuda_graph!r}: expected 'auto', True or False")
        if isinstance(metadata, str) or not all(isinstance(column, str) for column in metadata):
            raise InputError(f"metadata={metadata!r}: expected keys of what the loader yields, such as ('weather',)")
        self._measurement = measurement
        self._collection = measurement.collection
        self._unpack, self._metadata = unpack, tuple(metadata)
        tap = measurement.tap
        self._record = cuda_graph
        self._graphs = GraphedUpdates(tap, measurement.collection, cuda_graph) if cuda_graph and tap else None
        self._depth = 0
        self._halving = Halving()

    def fork(self, measurement: Measurement) -> BatchReader:
        """Return one that reads for another measurement in the same way."""
        return BatchReader(measurement, self._unpack, metadata=self._metadata, cuda_graph=self._record)

    def tap(self, hint: str = ": pass activations=") -> Tap:
        """Return what runs the model; refuse where there is none, with a hint what to do instead."""
        if self._measurement.tap is None:
            raise InputError(f"this coverage has no model to run inputs through{hint}")
        return self._measurement.tap

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep hooks and recorded updates in place for many batches in a row."""
        with ExitStack() as stack:
            for part in (self._measurement.tap, self._graphs):
                if part is not None:
                    stack.enter_context(part.open())
            self._depth += 1
            stack.callback(self._leave)
            yield

    def _leave(self) -> None:
        self._depth -= 1

    def first(self) -> AbstractContextManager[None]:
        """Return a block in which a first batch that raises leaves layers and time steps open."""
        return nullcontext() if self._collection.layout is not None else self._settling()

    @contextmanager
    def _settling(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._collection.empty:
                self._collection.layout = None
                if self._measurement.tap is not None:
                    self._measurement.tap.forget_steps()
            raise

    def watch(self) -> None:
        """Refuse to go on if the weights changed; within a block, parameters are not looked for anew."""
        self._measurement.provenance.watch(empty=self._collection.empty, whole=not self._depth)

    def feed(
        self,
        use: Callable[[Activations], T],
        inputs: Any,
        labels: Any,
        activations: Any,
        predictions: Any,
        lengths: Any,
    ) -> T:
        """Read one batch, whatever it was given as, and return what ``use`` makes of it."""
        with self.first():
            return use(self._given(inputs, labels, activations, predictions, lengths))

    def feed_all(
        self,
        use: Callable[[Activations], T],
        join: Callable[[list[T]], T],
        inputs: Any,
        labels: Any,
        activations: Any,
        predictions: Any,
        lengths: Any,
    ) -> T:
        """Read one batch, or every batch of a loader, and return what ``use`` makes of them, joined."""
        if activations is not None or not is_loader(inputs):
            return self.feed(use, inputs, labels, activations, predictions, lengths)
        if labels is not None or predictions is not None:
            raise InputError("labels= and predictions= go with one batch; batches of a loader carry their own")
        found = []
        with self.first(), self.open():
            for batch in self.inputs(inputs, lengths, "judging", None):
                read = self._run(self.tap(), batch)[0]
                self.watch()
                found.append(use(read))
        if not found:
            raise InputError("the data gave no batch: nothing was judged")
        return join(found)

    def _given(self, inputs: Any, labels: Any, activations: Any, predictions: Any, lengths: Any) -> Activations:
        """Read one batch to measure, unless the weights have changed."""
        found = self._read(inputs, labels, activations, predictions, lengths)
        self.watch()
        return found

    def _read(self, inputs: Any, labels: Any, activations: Any, predictions: Any, lengths: Any) -> Activations:
        if (inputs is None) == (activations is None):
            raise InputError("give either inputs or activations=, one of the two")
        if activations is not None:
            layout = self._collection.layout
            device = None if layout is None else layout.device
            return self.in_layout_order(as_activations(activations, labels, predictions, device))
        tap = self.tap()
        if predictions is not None:
            raise InputError("predictions= goes with activations=; with inputs the model predicts")
        return self._run(tap, self._batch(inputs, labels), lengths)[0]

    def run(self, inputs: Any, labels: Any, lengths: Any, *, predictions: bool) -> tuple[Activations, Any]:
        """Run the model once; return the activations and the model's output."""
        return self._run(self.tap(hint=""), self._batch(inputs, labels), lengths, predictions=predictions)

    def run_batch(self, batch: Batch, *, relevance: bool) -> tuple[Activations, Any]:
        """Run the model on a batch of a loader, with the classes it chose where there are some to read.

        Args:
            batch: as ``inputs`` gives it.
            relevance: whether to compute relevance where a criterion needs it.
        """
        return self._run(self.tap(hint=""), batch, readable=True, relevance=relevance)

    def _batch(self, inputs: Any, labels: Any) -> Batch:
        """Put a batch together, unless the inputs are one already."""
        if not isinstance(inputs, Batch):
            return Batch(inputs, self.read_labels(labels))
        if labels is not None and inputs.labels is not None:
            raise InputError("labels are given twice, in the batch and beside it: give them once")
        return replace(inputs, labels=self.read_labels(inputs.labels if labels is None else labels))

    def _run(
        self,
        tap: Tap,
        batch: Batch,
        lengths: Any = None,
        *,
        predictions: bool = False,
        readable: bool = False,
        relevance: bool = True,
    ) -> tuple[Activations, Any]:
        needs = self._collection.needs
        asked = predictions or readable or "predictions" in needs or self._collection.wants_predictions
        activations, output = tap.run(
            batch,
            lengths=lengths,
            predictions=predictions or "predictions" in needs,
            # For accuracy and classes. Outputs spread over ranks would have to be put together first, and a function of
            # the user's own may take its time.
            readable=asked or not (tap.spread or (tap.decisions.told and batch.labels is None)),
            relevance=relevance and "relevance" in needs,
        )
        return with_decisions(self.in_layout_order(activations), asked=asked), output

    def read_labels(self, labels: Any) -> Tensor | None:
        """Read labels as criteria use them; refuse what cannot be used only where a criterion needs it."""
        if labels is None:
            return None
        return as_labels(labels) if "labels" in self._collection.needs else usable_labels(labels)

    def in_layout_order(self, batch: Activations) -> Activations:
        """Put the layers of a batch in order; the first batch says which it is."""
        if self._collection.layout is None:
            self._collection.layout = batch.layout
        return in_layout_order(batch, self._collection.layout)

    def observe(self, inputs: Any, labels: Any, activations: Any, predictions: Any, lengths: Any) -> None:
        """Observe one batch, whatever it was given as."""
        recordable = inputs is not None and activations is None and predictions is None and lengths is None
        if self._graphs is not None and recordable:
            with self.first():
                self._observe_inputs(self._batch(inputs, labels), None)
        elif inputs is not None and activations is None and predictions is None:
            with self.first():
                self._observe_run(self._batch(inputs, labels), lengths)
        else:
            self.feed(self._collection.observe, inputs, labels, activations, predictions, lengths)

    def _observe_inputs(self, batch: Batch, watcher: Watcher | None) -> None:
        """Observe a batch of inputs, by a recorded update where there is one for it; somebody else may look first."""
        graphs = self._graphs
        if graphs is None or not graphs.able or (watcher is not None and not watcher.looks_only):
            self._observe_plain(batch, watcher)
            return
        self.watch()
        look = None if watcher is None else lambda found: watcher.watch(found, batch.inputs)
        graphs.update(batch, lambda whole: self._observe_plain(whole, watcher), look)

    def _observe_plain(self, batch: Batch, watcher: Watcher | None) -> list[Activations]:
        return self._observe_run(batch) if watcher is None else self._observe_watched(batch, watcher)

    def _observe_run(self, batch: Batch, lengths: Any = None) -> list[Activations]:
        """Run the model and observe what it gives, in parts where memory does not suffice for the whole."""
        tap = self.tap(": pass activations=")
        whole = batch if lengths is None else replace(batch, lengths=lengths)
        parts = list(self._halving.run(tap, whole, lambda part: self._run(tap, part)[0]))
        self.watch()
        for found in parts:
            self._collection.observe(found, kept=True)
        return parts

    def _observe_watched(self, batch: Batch, watcher: Watcher) -> list[Activations]:
        """Observe a batch that somebody else looks at first."""
        tap = self.tap()
        readable = watcher.wants_classes
        parts = list(self._halving.run(tap, batch, lambda part: self._run(tap, part, readable=readable)[0]))
        for found in parts:
            self.watch()
            self._collection.check(found)
            with self._collection.turn:
                watcher.watch(found, batch.inputs)
                self._collection.observe(found, kept=True)
        return parts

    def explain(self) -> str:
        """Return whether updates were recorded as CUDA graphs, and why not."""
        if self._measurement.tap is None:
            return "updates are plain calls: this coverage has no model to run"
        return "updates are plain calls: cuda_graph=False" if self._graphs is None else self._graphs.explain()

    def assess(
        self,
        data: Any,
        lengths: Lengths | None,
        progress: bool | None,
        watcher: Watcher | None = None,
        after_batch: Callable[[], None] | None = None,
        *,
        may_be_empty: bool = False,
    ) -> None:
        """Observe every batch of a loader as one run, which somebody may watch, and be told after each batch."""
        observed = False
        self._measurement.seen.end_run()
        columns = () if watcher is None else watcher.columns
        with self.first(), self.open():
            for batch in self.inputs(data, lengths, "assessing", progress, columns):
                self._observe_inputs(batch, watcher)
                observed = True
                if after_batch is not None:
                    after_batch()
        self._measurement.seen.end_run()
        if observed:
            self.watch()
        elif not may_be_empty:
            raise InputError("the data gave no batch: nothing was assessed")

    def batches(
        self,
        data: Any,
        activations: Any,
        labels: Any,
        predictions: Any,
        lengths: Lengths | None,
        title: str,
        progress: bool | None,
        *,
        readable: bool = False,
    ) -> Iterator[Activations]:
        """Read every batch of a loader, or of bare activations; with classes that the model chose, if ``readable``."""
        if (data is None) == (activations is None):
            raise InputError("give either data or activations=, one of the two")
        if isinstance(activations, (Mapping, Activations)):
            yield self._read(None, labels, activations, predictions, None)
        elif activations is not None:
            for item in tracked(activations, title, progress):
                yield self._read(None, None, item, None, None)
        else:
            tap = self.tap()
            for batch in self.inputs(data, lengths, title, progress):
                yield from self._halving.run(tap, batch, lambda part: self._run(tap, part, readable=readable)[0])

    def inputs(
        self, data: Any, lengths: Lengths | None, title: str, progress: bool | None, columns: Sequence[str] = ()
    ) -> Iterator[Batch]:
        """Take every batch of a loader apart; ``columns`` are further keys that hold metadata."""
        if isinstance(data, (Tensor, Mapping)) or not isinstance(data, Iterable):
            raise InputError(f"data of type {type(data).__name__}: expected a loader that yields batches")
        model, warned = self.tap().model, self._measurement.warned
        form, two_inputs = form_of(model), requires_two_inputs(model)
        for item in tracked(data, title, progress):
            batch = unpack_batch(
                item,
                self._unpack,
                two_inputs=two_inputs,
                read_labels=self.read_labels,
                form=form,
                metadata=(*self._metadata, *columns),
            )
            unused = unused_part(item, batch, form) if self._unpack is None else None
            if unused is not None and "unused" not in warned:
                warned.add("unused")
                warnings.warn(unused, CoverageWarning, stacklevel=2)
            yield batch if lengths is None else with_lengths(batch, item, lengths, form)
