"""Updates recorded as CUDA graphs: at small batches a GPU mostly waits for Python to start the next kernel."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.core.guards import in_turn
from neuralcov.core.memory import available_bytes
from neuralcov.core.records import map_tensors
from neuralcov.core.trees import map_leaves
from neuralcov.coverage.arrays import in_layout_order
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.graph_memory import alike, copy_inputs, free_random_numbers, write_state
from neuralcov.coverage.graph_progress import CapturedUpdate, ShapeProgress
from neuralcov.coverage.graph_rounding import allowed_rounding, difference
from neuralcov.coverage.ownership import GraphOwned
from neuralcov.coverage.pace import Pace, no_faster, timed
from neuralcov.coverage.recordable import Traces, against_hooks, against_model, circumstances, shape_of, told_shape
from neuralcov.coverage.suite_counts import DECISIONS, decisions_of, with_decisions
from neuralcov.tap import Batch, Tap
from neuralcov.tap.outputs import TOKENS

AUTO = "auto"

# How many shapes of input are recorded in one block; further ones are run in the ordinary way.
_MOST_SHAPES = 4
# What must stay free on the device beside a recording, which keeps all that one pass takes.
_ROOM = 0.1

Plain = Callable[[Batch], Sequence[Activations]]
"""Observe a batch by plain calls; return what was observed, in as many parts as memory asked for."""


class GraphedUpdates:
    """Run updates of a coverage as CUDA graphs.

    By ``"auto"`` the first two batches of a shape are plain calls, which show whether anything speaks against
    recording. At the third the pass is recorded, replayed, and compared with plain calls of the same batch, whose
    results count; from then on batches are replayed. Where the two differ by rounding alone, what criteria make of the
    replay's own outputs is compared. Whatever cannot be recorded stays with plain calls, and ``explain`` says why. By
    ``True`` the second batch is recorded unseen, and what cannot be is an error.

    A recording holds the forward pass, the reduction to neurons, the observation by every criterion whose state has a
    fixed size, and what the other criteria can prepare; these observe afterwards, in the ordinary way. States with
    recordings live in fixed tensors (``homes``), which the collection holds as graph-owned: it copies them before
    anybody keeps them. Recordings live as long as the hooks do, for one block, within which the model's tensors stay
    where they are.
    """

    def __init__(self, tap: Tap, collection: CriterionCollection, rule: bool | str = AUTO) -> None:
        self.tap, self.collection, self.turn, self.rule = tap, collection, collection.turn, rule
        self._depth = 0
        self._against: str | None = "no batch was run within a block (assess, or `with coverage.tap():`)"
        self._forget()

    def _forget(self) -> None:
        self._criteria: Sequence[AnyCriterion] = ()
        self._looked = False
        self._homes: dict[int, Any] = {}
        self._shapes: dict[tuple[Hashable, ...], ShapeProgress] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep recorded updates for a block."""
        with self.turn:
            if not self._depth:
                self._forget()
            self._depth += 1
        try:
            yield
        finally:
            with self.turn:
                self._depth -= 1
                if not self._depth:
                    self._homes = {}
                    for shape in self._shapes.values():
                        # What was done is still told.
                        shape.recording = None

    def explain(self) -> str:
        """Return which updates of this block, or of the last one, were recorded, and why others were not."""
        against = self._against and (against_model(self.tap) or self._against)
        if against is not None and not self._shapes:
            return f"updates are plain calls: {against}"
        return "\n".join(shape.sentence() for shape in self._shapes.values()) or "no batch was run yet"

    @property
    def able(self) -> bool:
        """Return whether anything can be recorded here: within a block, for a model on one GPU."""
        if not self._depth:
            return False
        if not self._looked:
            self._looked, self._against = True, self._speaks_against()
        return self._against is None

    def _speaks_against(self) -> str | None:
        if "relevance" in self.collection.needs:
            return "relevance is followed back through the model, which is not recorded"
        if self.tap.spread:
            return "the model is spread over ranks, and what these tell each other is not recorded"
        if self.tap.known_rows.pool == TOKENS:
            return "every token is an input of its own, and how many there are is not known before"
        return against_model(self.tap) or (against_hooks(self.tap) if self.rule == AUTO else None)

    @in_turn
    def update(self, batch: Batch, plain: Plain, look: Callable[[Activations], None] | None = None) -> None:
        """Take a batch in, by a recording or by plain calls.

        Args:
            batch: the inputs.
            plain: observes it by plain calls.
            look: is shown what a replay gives.
        """
        shape = self._shape_of(batch)
        if shape is None or (shape.why is not None and shape.recording is None):
            self._run_plain(shape, batch, plain)
        elif shape.recording is not None:
            self._replay(shape.recording, batch, look)
            shape.replayed += 1
        elif self.rule == AUTO:
            self._approach(shape, batch, plain)
        elif not shape.plain:
            # The first batch of a shape shows the layers, compiles kernels and finds the fastest convolutions.
            self._run_plain(shape, batch, plain)
        else:
            try:
                shape.recording = self._record(batch.inputs)
            except RuntimeError as error:
                raise InputError(
                    f"the model cannot be recorded as a CUDA graph ({_first_line(error)}): leave cuda_graph= out"
                ) from error
            self._replay(shape.recording, batch, look)
            shape.replayed += 1

    def _run_plain(self, shape: ShapeProgress | None, batch: Batch, plain: Plain) -> None:
        plain(batch)
        if shape is not None:
            shape.plain += 1

    def _shape_of(self, batch: Batch) -> ShapeProgress | None:
        """Return what is known of a batch's shape; ``None`` for one that is nothing to record."""
        if batch.lengths is not None or batch.batch is not None:
            return self._known(("given",), "with lengths or a number of inputs given beside them")
        found = shape_of(batch.inputs)
        if found is None:
            return self._known(("objects",), "that hold other things than tensors")
        if any(isinstance(part, tuple) and len(part) == 4 and 0 in part[1] for part in found):
            return None
        if self._criteria is not self.collection.criteria:
            # Calibrated anew: what was recorded reads what was learnt before.
            self._homes, self._shapes = {}, {}
            self._criteria = self.collection.criteria
        key = (*found, circumstances())
        if key not in self._shapes and sum(s.recording is not None for s in self._shapes.values()) >= _MOST_SHAPES:
            return self._known(("more",), f"of further shapes: {_MOST_SHAPES} are recorded at most")
        return self._shapes.setdefault(key, ShapeProgress(told_shape(found)))

    def _known(self, key: tuple[Hashable, ...], told: str) -> ShapeProgress:
        return self._shapes.setdefault(key, ShapeProgress(told, why="such inputs are not recorded"))

    def _approach(self, shape: ShapeProgress, batch: Batch, plain: Plain) -> None:
        """Run a batch by plain calls, and see on the way whether its shape can be recorded, and gains by it."""
        if shape.plain == 1:
            before, pace = Traces.of(self.tap), Pace(self.tap.device)
            with pace:
                self._run_plain(shape, batch, plain)
            left = before.left(Traces.of(self.tap))
            shape.pace = pace
            if left is not None:
                shape.refuse(left)
        elif shape.plain == 2 and shape.pace is not None:
            lag = shape.pace.lag()
            if lag is not None:
                shape.refuse(lag)
                self._run_plain(shape, batch, plain)
            else:
                self._try(shape, batch, plain)
        else:
            self._run_plain(shape, batch, plain)

    def _try(self, shape: ShapeProgress, batch: Batch, plain: Plain) -> None:
        """Record a shape, replay the recording, and compare it with plain calls; these count."""
        before = tuple(h.copy() if isinstance(h, GraphOwned) else h for h in self.collection.holdings)
        if not self.collection.empty:
            self.collection.advance(before, changed=False)
        try:
            recording = self._record(batch.inputs)
            for index, home in self._homes.items():
                write_state(before[index].state, home)
            copy_inputs(batch.inputs, recording.inputs)
            _, replayed = timed(self.tap.device, recording.replay)
        except Exception as error:
            # Whatever it is: plain calls do without, and if it is the model's own they will raise it.
            self._drop(shape, f"it cannot be recorded ({_first_line(error)})")
            self._run_plain(shape, batch, plain)
            return
        found, plainly = timed(self.tap.device, lambda: plain(batch))
        shape.plain += 1
        differs = self._differs(recording, found) or no_faster(
            lambda: timed(self.tap.device, recording.replay)[1], replayed, plainly
        )
        if differs is None and not self._has_room():
            differs = "the device's memory is too small to keep a recording"
        if differs is None:
            shape.take(recording)
        else:
            self._drop(shape, differs)

    def _drop(self, shape: ShapeProgress, why: str) -> None:
        shape.refuse(why)
        if not any(other.recording for other in self._shapes.values()):
            self._homes = {}

    def _differs(self, recording: CapturedUpdate, found: Sequence[Activations]) -> str | None:
        """Return what a replay gave otherwise than plain calls, but for what is rounded otherwise."""
        if len(found) != 1:
            return "the device's memory is too small for whole batches"
        told, recording.rounds = difference(found[0], recording.outputs, allowed_rounding(self.tap))
        if told is not None:
            return told
        states = self._observed_anew(recording) if recording.rounds else self.collection.states
        for index, home in self._homes.items():
            if not alike(states[index], home):
                return f"a replay gave another state of {self._criteria[index].name} than plain calls"
        return None

    def _observed_anew(self, recording: CapturedUpdate) -> dict[int, Any]:
        """Replay once more on empty states; return what plain calls make of the outputs that the replay gave."""
        assert self.collection.layout is not None
        empty = {index: self._criteria[index].init(self.collection.layout) for index in self._homes}
        for index, home in self._homes.items():
            write_state(empty[index], home)
        recording.replay()
        seen = replace(recording.outputs)
        return {index: self._criteria[index].observe(state, seen, donate=True) for index, state in empty.items()}

    def _has_room(self) -> bool:
        if self.tap.device.type != "cuda":
            return True
        left = available_bytes(self.tap.device)
        whole = torch.cuda.get_device_properties(self.tap.device).total_memory
        return left is None or left > _ROOM * whole

    def _record(self, inputs: Any) -> CapturedUpdate:
        states = self.collection.states
        for index, criterion in enumerate(self._criteria):
            if criterion.fixed_size and index not in self._homes:
                self._homes[index] = map_tensors(torch.clone, states[index])
        place = map_leaves(inputs, lambda leaf: torch.empty_like(leaf, device=self.tap.device).copy_(leaf))

        def work() -> tuple[Activations, Mapping[Hashable, Any]]:
            outputs = self._forward(place)
            shared = outputs.shared_during(lambda: self._observe(outputs))
            return outputs, shared

        replay, (outputs, shared) = self._capture(work)
        return CapturedUpdate(replay, place, outputs, shared)

    def _capture(
        self, work: Callable[[], tuple[Activations, Mapping[Hashable, Any]]]
    ) -> tuple[Callable[[], None], tuple[Activations, Mapping[Hashable, Any]]]:
        """Record what ``work`` asks of the device, which does none of it yet."""
        graph, random_state = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(self.tap.device)
        try:
            with torch.cuda.graph(graph):
                found = work()
        except Exception:
            free_random_numbers(self.tap.device, random_state)
            raise
        return graph.replay, found

    def _observe(self, outputs: Activations) -> None:
        """Observe by the criteria of fixed size, and prepare the others' work."""
        for index, home in self._homes.items():
            # In place where that is how it observes; what it gives in new tensors is written back.
            write_state(self._criteria[index].observe(home, outputs, donate=True), home)
        for index, criterion in enumerate(self._criteria):
            if index not in self._homes:
                criterion.prepare(outputs)

    def _forward(self, inputs: Any) -> Activations:
        assert self.collection.layout is not None
        predictions = "predictions" in self.collection.needs
        asked = predictions or self.collection.wants_predictions
        # A function of the user's own may not be one that can be recorded.
        readable = asked or not self.tap.decisions.told
        activations, _ = self.tap.run(Batch(inputs), predictions=predictions, readable=readable)
        outputs = with_decisions(in_layout_order(activations, self.collection.layout), asked=asked)
        if self.collection.keeps_keys:
            # Keys are recorded as well: computed afterwards, each would be started by the host.
            decisions = decisions_of(outputs)
            outputs = replace(outputs, keys=outputs.content_keys)
            outputs.shared(DECISIONS, lambda: decisions)
        return outputs

    def _replay(self, recording: CapturedUpdate, batch: Batch, look: Callable[[Activations], None] | None) -> None:
        collection, outputs = self.collection, recording.outputs
        # Another object than the recorded one, which remembers what was computed for the batch it was made with.
        labels = None if batch.labels is None else batch.labels.to(outputs.device)
        seen = replace(outputs, labels=labels, **batch.names(outputs.size))
        collection.check(seen)
        before = collection.holdings
        for index, home in self._homes.items():
            held = before[index]
            if not (isinstance(held, GraphOwned) and held.home is home):
                write_state(held.state, home)
        copy_inputs(batch.inputs, recording.inputs)
        for index in self._homes:
            # From here on a home no longer has the state before, whatever interrupts the rest.
            if isinstance(before[index], GraphOwned):
                before[index].give_up()
        recording.replay()
        seen.take_over(recording.shared)
        if look is not None:
            look(seen)
        after = tuple(
            GraphOwned(self._homes[index]) if index in self._homes else holding.observe(criterion, seen)
            for index, (criterion, holding) in enumerate(zip(self._criteria, before, strict=True))
        )
        collection.advance(after)
        # Copied: the next replay writes its own to the same place.
        finite = outputs.finite.clone() if self._homes else None
        copies = {"keys": seen.keys, "decisions": decisions_of(outputs), "moments": outputs.moments}
        collection.note(seen, finite=finite, **{name: _copied(tensor) for name, tensor in copies.items()})


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
