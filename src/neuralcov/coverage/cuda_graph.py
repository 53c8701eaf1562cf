"""Updates recorded as CUDA graphs: at small batches a GPU mostly waits for Python to start the next kernel."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError
from neuralcov.core.guards import in_turn
from neuralcov.core.records import flatten, map_tensors
from neuralcov.coverage.arrays import in_layout_order
from neuralcov.coverage.collection import AnyCriterion, CriterionCollection
from neuralcov.coverage.ownership import GraphOwned
from neuralcov.coverage.suite_counts import DECISIONS, decisions_of, with_decisions
from neuralcov.tap import Batch, Tap
from neuralcov.tap.outputs import TOKENS

# How many shapes of input are recorded in one block; further ones are run in the ordinary way.
_MOST_SHAPES = 4


@dataclass(frozen=True, eq=False)
class CapturedUpdate:
    """Hold one recorded update of one shape: where its input goes, and where the layers' outputs appear.

    ``prepared`` is what growing criteria will need of every batch, which each replay computes anew in the same place.
    """

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    outputs: Activations
    prepared: Mapping[Hashable, Any]


class GraphedUpdates:
    """Run updates of a coverage as CUDA graphs, recorded at the second batch of a shape.

    A recording holds the forward pass, the reduction to neurons, the observation by every criterion whose state has a
    fixed size, and what the other criteria can prepare; these observe afterwards, in the ordinary way. States with
    recordings live in fixed tensors (``homes``), which the collection holds as graph-owned: it copies them before
    anybody keeps them. Recordings live as long as the hooks do, for one block, within which the model's tensors stay
    where they are.
    """

    def __init__(self, tap: Tap, collection: CriterionCollection) -> None:
        self.tap, self.collection, self.turn = tap, collection, collection.turn
        self._depth = 0
        self._forget()

    def _forget(self) -> None:
        self._criteria: Sequence[AnyCriterion] = ()
        self._on_one_gpu: bool | None = None
        self._homes: dict[int, Any] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._recordings: dict[tuple[Any, ...], CapturedUpdate] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep recorded updates for a block."""
        with self.turn:
            self._depth += 1
        try:
            yield
        finally:
            with self.turn:
                self._depth -= 1
                if not self._depth:
                    self._forget()

    @in_turn
    def update(self, batch: Batch) -> bool:
        """Take a batch in, if it can be done by a recording; say whether it was."""
        if not self._suits(batch):
            return False
        inputs: Tensor = batch.inputs
        shape = (tuple(inputs.shape), inputs.dtype, inputs.stride())
        if self._criteria is not self.collection.criteria:
            # Calibrated anew: what was recorded reads what was learnt before.
            self._forget()
            self._criteria = self.collection.criteria
        if shape not in self._recordings:
            if shape not in self._seen or len(self._recordings) >= _MOST_SHAPES:
                # The first batch of a shape shows the layers, compiles kernels and finds the fastest convolutions.
                self._seen.add(shape)
                return False
            self._recordings[shape] = self._record(inputs)
        self._replay(self._recordings[shape], batch)
        return True

    def _suits(self, batch: Batch) -> bool:
        """Return whether a batch is of the kind to record: one tensor, for a model on one GPU, within a block."""
        collection = self.collection
        if not self._depth or not isinstance(batch.inputs, Tensor) or "relevance" in collection.needs:
            return False
        if self.tap.spread or batch.lengths is not None or self.tap.known_rows.pool == TOKENS:
            # What ranks tell each other is not recorded, nor what depends on lengths, or how many tokens there are.
            return False
        if batch.inputs.shape[self.tap.batch_axis] == 0:
            return False
        if self._on_one_gpu is None:
            devices = {parameter.device for parameter in self.tap.model.parameters()}
            self._on_one_gpu = len(devices) == 1 and devices.pop().type == "cuda"
        return self._on_one_gpu

    def _record(self, inputs: Tensor) -> CapturedUpdate:
        states = self.collection.states
        for index, criterion in enumerate(self._criteria):
            if criterion.fixed_size and index not in self._homes:
                self._homes[index] = map_tensors(torch.clone, states[index])
        place = torch.empty_like(inputs, device=self.tap.device).copy_(inputs)
        graph = torch.cuda.CUDAGraph()
        random_state = torch.cuda.get_rng_state(self.tap.device)
        try:
            with torch.cuda.graph(graph):
                outputs = self._forward(place)
                for index, home in self._homes.items():
                    # Not donated: a recorded update reads its state from its home and writes it back there as a whole.
                    _write(self._criteria[index].observe(home, outputs), home)
                prepared = outputs.shared_during(lambda: self._prepare(outputs))
        except RuntimeError as error:
            _free_random_numbers(self.tap.device, random_state)
            raise InputError(
                f"the model cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}): leave cuda_graph= out"
            ) from error
        return CapturedUpdate(graph, place, outputs, prepared)

    def _prepare(self, outputs: Activations) -> None:
        for index, criterion in enumerate(self._criteria):
            if index not in self._homes:
                criterion.prepare(outputs)

    def _forward(self, inputs: Tensor) -> Activations:
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

    def _replay(self, recording: CapturedUpdate, batch: Batch) -> None:
        collection, outputs = self.collection, recording.outputs
        # Another object than the recorded one, which remembers what was computed for the batch it was made with.
        labels = None if batch.labels is None else batch.labels.to(outputs.device)
        seen = replace(outputs, labels=labels, **batch.names(outputs.size))
        seen.take_over(recording.prepared)
        collection.check(seen)
        before = collection.holdings
        for index, home in self._homes.items():
            held = before[index]
            if not (isinstance(held, GraphOwned) and held.home is home):
                _write(held.state, home)
        recording.inputs.copy_(batch.inputs, non_blocking=True)
        for index in self._homes:
            # From here on a home no longer has the state before, whatever interrupts the rest.
            if isinstance(before[index], GraphOwned):
                before[index].give_up()
        recording.graph.replay()
        after = tuple(
            GraphOwned(self._homes[index]) if index in self._homes else holding.observe(criterion, seen)
            for index, (criterion, holding) in enumerate(zip(self._criteria, before, strict=True))
        )
        collection.advance(after)
        # Copied: the next replay writes its own to the same place.
        finite = outputs.finite.clone() if self._homes else None
        copies = {"keys": seen.keys, "decisions": decisions_of(outputs)}
        collection.note(seen, finite=finite, **{name: _copied(tensor) for name, tensor in copies.items()})


def _free_random_numbers(device: torch.device, state: Tensor) -> None:
    """Give a device a generator of random numbers that no recording holds.

    A recording that fails keeps PyTorch's own, which then refuses every further random number on that device.
    """
    fresh = torch.Generator(device)
    fresh.set_state(state)
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())


def _copied(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def _write(state: Any, home: Any) -> None:
    """Copy a state into the tensors of another of the same shape."""
    source: dict[str, Tensor] = {}
    target: dict[str, Tensor] = {}
    if flatten(state, "", source) != flatten(home, "", target):
        raise AssertionError(f"{type(home).__name__} is not of a fixed size")
    for name, tensor in target.items():
        if tensor.data_ptr() != source[name].data_ptr():
            tensor.copy_(source[name])
