"""The tap: hooks on the chosen layers for the length of one block, and a model run that fills a batch."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils.hooks import RemovableHandle

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.guards import with_ordinary_tensors
from neuralcov.tap.inputs import Batch, Padding, batch_size, call, first_tensor, padding_of, to_device
from neuralcov.tap.kinds import Kind, declared_width, kind_of, multiplies_by_weights, static_width
from neuralcov.tap.predict import checked_classes, predicted_classes, scores_of
from neuralcov.tap.preserve import Block, enter, join, leave, original_module, turn_of
from neuralcov.tap.reduce import to_neurons
from neuralcov.tap.relevance import layer_relevance, relevance_tape
from neuralcov.tap.select import LayerChoice, choose_layers
from neuralcov.tap.shards import Shards, require_whole
from neuralcov.tap.tape import Tape
from neuralcov.tap.unmeasured import Unmeasured, unmeasured

# What a layer's name has behind its module's: a further call, a time step.
_CALL = re.compile(r"(#\d+)?(\[\d+\])?$")


@dataclass
class _Recording:
    """What the hooks gather during one run of the model."""

    size: int
    padding: Padding | None
    layers: dict[str, Tensor] = field(default_factory=dict)
    present: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    tape: Tape | None = None
    thread: int = field(default_factory=get_ident)


class Tap:
    """Runs a model and gives the activations of its chosen layers.

    Hooks exist only within :meth:`open`; the model is put into eval mode there (``mode="keep"`` leaves
    it) and is afterwards as it was. Outputs are reduced inside the hook, so that feature maps are never
    held and in-place activations cannot overwrite them.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: LayerChoice = None,
        *,
        predict: Callable[[Any], Any] | None = None,
        batch_axis: int = 0,
        device: torch.device | str | None = None,
        mode: str = "eval",
        steps: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"a model of type {type(model).__name__}: expected a torch.nn.Module")
        if mode not in ("eval", "keep"):
            raise InputError(f"mode={mode!r}: expected 'eval' or 'keep'")
        if steps is not None and (not isinstance(steps, int) or steps < 1):
            raise InputError(f"steps={steps!r}: expected a whole number of at least 1")
        if not isinstance(batch_axis, int):
            raise InputError(f"batch_axis={batch_axis!r}: expected a whole number")
        if predict is not None and not callable(predict):
            raise InputError(f"predict={predict!r}: expected a function from the model's output to classes")
        self.model = original_module(model)
        self.chosen = choose_layers(self.model, layers)
        self._by_choice = layers is not None
        self._widths_checked = False
        self._shards: Shards | None = None
        self._looked_for_shards = False
        self._cells = [name for name, module in self.chosen.items() if kind_of(module).cell]
        self.batch_axis = batch_axis
        self._predict = predict
        self._device = None if device is None else torch.device(device)
        self._mode = mode
        self._steps: dict[str, int] = {}
        self._most_steps = steps
        self._turn = turn_of(self.model)
        self._depth = 0
        self._handles: list[RemovableHandle] = []
        self._within: Block | None = None
        self._recording: _Recording | None = None

    def fork(self) -> Tap:
        """Copy this tap, with what it has found out, but without its block and its recording."""
        twin = copy.copy(self)
        twin._steps = dict(self._steps)
        twin._depth, twin._handles, twin._within, twin._recording = 0, [], None, None
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A deep copy has a model of its own, whose passes others may measure too.
        vars(self).update(state)
        self._turn = turn_of(self.model)

    @property
    def device(self) -> torch.device:
        """Where inputs go: where the model's first parameter lies, or as said for a model without any."""
        first = next(self.model.parameters(), None)
        if first is None:
            return self._device or torch.device("cpu")
        said = self._device
        if said is not None and (said.type != first.device.type or said.index not in (None, first.device.index)):
            raise InputError(
                f"device={str(said)!r} but the model's parameters are on {first.device}: "
                "move the model there or leave device= out"
            )
        return first.device

    @property
    def spread(self) -> bool:
        """Whether chosen modules have parameters that are spread over several ranks."""
        return self._shards is not None

    def unmeasured(self, layers: Collection[str] | None = None) -> Unmeasured:
        """Count the parameters that belong to none of these layers; by default to none of the chosen modules."""
        names = self.chosen if layers is None else {*layers, *(_CALL.sub("", layer) for layer in layers)}
        measured = [module for name, module in self.chosen.items() if name in names]
        return unmeasured(self.model, measured, by_choice=self._by_choice)

    def widths(self) -> dict[str, int]:
        """Neurons of the chosen modules that tell them without being run."""
        known = {name: static_width(module) for name, module in self.chosen.items()}
        return {name: width for name, width in known.items() if width is not None}

    def expect(self, layers: Collection[str]) -> None:
        """Go on with as many time steps as these layers have, which an earlier run recorded."""
        unrolled = [layer.rpartition("[")[0] for layer in layers if layer.endswith("]")]
        called = [name for layer in layers if (name := layer.partition("#")[0]) in self._cells]
        self._steps |= Counter(name for name in unrolled if name.partition("#")[0] in self.chosen) | Counter(called)

    @contextmanager
    def open(self) -> Iterator[None]:
        """One block: hooks are added at its start and gone at its end, exception or not."""
        with self._turn:
            if self._within is None:
                self._begin()
            else:
                join(self._within)
            self._depth += 1
        try:
            yield
        finally:
            with self._turn:
                self._depth -= 1
                if not self._depth:
                    self._end()

    def _begin(self) -> None:
        if not self._looked_for_shards:
            self._shards, self._looked_for_shards = Shards.among(self.chosen), True
        spread = self._shards.modules if self._shards is not None else ()
        self._within, self._handles = enter(self.model, self._mode), []
        try:
            for name, module in self.chosen.items():
                hook = partial(self._hook, name, kind_of(module))
                self._handles.append(module.register_forward_hook(hook, prepend=name in spread))
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        for handle in self._handles:
            handle.remove()
        block, self._within, self._handles = self._within, None, []
        if block is not None:
            leave(block)

    def run(
        self, batch: Batch, *, lengths: Any = None, predictions: bool = False, relevance: bool = False
    ) -> tuple[Activations, Any]:
        """Run the model on one batch, within a block of its own if none is open.

        Args:
            batch: inputs, and labels where known.
            lengths: time steps of each input, where shorter ones are padded.
            predictions: whether to read off the classes the model chose.
            relevance: whether to follow the logit of the chosen class back to every layer.

        Returns the activations and the model's output.
        """
        inputs = to_device(batch.inputs, self.device)
        size = batch_size(inputs, self.batch_axis)
        if batch.labels is not None and batch.labels.shape[0] != size:
            raise InputError(f"{batch.labels.shape[0]} labels for {size} inputs: expected one label per input")
        recording = _Recording(size, padding_of(inputs, lengths, size, self.batch_axis))
        if relevance:
            self._refuse_recurrent()
            recording.tape = relevance_tape(self.model)
        # Relevance is handed back by autograd, which tensors of inference mode take no part in.
        grad_mode = torch.inference_mode(False) if relevance else nullcontext()
        with self._turn, grad_mode:
            # A block that this thread alone has open needs no joining.
            alone = self._within is not None and self._within.thread == recording.thread
            with nullcontext() if alone else self.open(), torch.no_grad():
                self._recording = recording
                try:
                    with recording.tape or nullcontext():
                        output = call(self.model, inputs)
                finally:
                    self._recording = None
            self._complete(recording)
            if self._shards is not None:
                classes_read = (predictions or relevance) and self._predict is None
                self._shards.check(recording.layers, scores_of(output), classes=classes_read)
            classes = self._classes(output, size) if predictions or relevance else None
            explained = None if classes is None else self._explain(recording, output, classes)
        home = next(iter(recording.layers.values())).device
        activations = Activations(
            layers=recording.layers,
            labels=None if batch.labels is None else batch.labels.to(home),
            predictions=None if classes is None else classes.to(home),
            relevance=explained,
            present=recording.present,
        )
        if torch.is_inference_mode_enabled() or (batch.labels is not None and batch.labels.is_inference()):
            activations = with_ordinary_tensors(activations)
        return activations, output

    def _explain(self, recording: _Recording, output: Any, classes: Tensor) -> dict[str, Tensor] | None:
        """The relevance of every layer's neurons, if it was asked for."""
        scores = scores_of(output)
        if recording.tape is None or scores is None:
            return None

        def reduce(layer: str, relevance: Tensor) -> Tensor:
            return to_neurons(relevance, recording.size, kind_of(self._module(layer)), layer, total=True)

        return layer_relevance(recording.tape, scores, classes, reduce)

    def _module(self, layer: str) -> nn.Module:
        """The module behind a layer: ``fc`` for its second call, ``fc#1``."""
        return self.chosen[layer] if layer in self.chosen else self.chosen[layer.rpartition("#")[0]]

    def _refuse_recurrent(self) -> None:
        for name, module in self.chosen.items():
            if kind_of(module).recurrent or kind_of(module).cell:
                raise LayerError(
                    f"layer {name!r} is recurrent ({type(module).__name__}), for which there is no relevance rule: "
                    f"leave it out, for example with layers='!{name}', or leave NPC out"
                )

    def _classes(self, output: Any, size: int) -> Tensor:
        if self._predict is not None:
            return checked_classes(self._predict(output), size)
        return predicted_classes(output, size)

    def _hook(self, name: str, kind: Kind, module: nn.Module, args: Any, output: Any) -> None:
        recording = self._recording
        if recording is None or recording.thread != get_ident():
            # A pass that is not ours: the user's own, or that of another coverage in another thread.
            return
        index = recording.calls.get(name, 0)
        recording.calls[name] = index + 1
        layer = f"{name}#{index}" if index else name
        if kind.recurrent:
            self._record_steps(recording, layer, kind, output)
            return
        tensor = first_tensor(output)
        if tensor is None:
            raise LayerError(f"layer {layer!r} returned a {type(output).__name__} without a tensor; leave it out")
        if recording.tape is None and self._shards is None:
            recording.layers[layer] = to_neurons(tensor, recording.size, kind, layer, recording.padding)
            return
        if recording.tape is None:
            recording.layers[layer] = self._neurons(recording, layer, module, kind, tensor)
            return
        with recording.tape.paused():
            if self._shards is not None:
                self._shards.refuse_relevance(layer, module, tensor)
            recording.tape.mark(layer, tensor, weighted=multiplies_by_weights(module))
            recording.layers[layer] = self._neurons(recording, layer, module, kind, tensor)

    def _neurons(self, recording: _Recording, layer: str, module: nn.Module, kind: Kind, tensor: Tensor) -> Tensor:
        size, padding = recording.size, recording.padding
        if self._shards is None:
            return to_neurons(tensor, size, kind, layer, padding)
        return self._shards.neurons(
            layer, module, kind, tensor, size, lambda part: to_neurons(part, size, kind, layer, padding)
        )

    def _record_steps(self, recording: _Recording, layer: str, kind: Kind, output: Any) -> None:
        """Unroll a recurrent module: every time step is a layer of its own."""
        sequence, padding = output[0], recording.padding
        if isinstance(sequence, PackedSequence):
            sequence, lengths = pad_packed_sequence(sequence, batch_first=True)
            padding = Padding.of_mask((torch.arange(sequence.shape[1]) < lengths[:, None]).to(sequence.device))
        elif kind.batch_axis == 1:
            sequence = sequence.movedim(1, 0)
        if sequence.dim() != 3 or sequence.shape[0] != recording.size:
            raise LayerError(
                f"layer {layer!r} gave shape {tuple(output[0].shape)} for a batch of {recording.size}: "
                "expected a batched sequence; check batch_first and batch_axis="
            )
        steps = self._steps.setdefault(layer, self._most_steps or sequence.shape[1])
        taken = sequence.shape[1]
        if taken > steps:
            raise InputError(
                f"layer {layer!r} ran {taken} steps, more than the {steps} it was set up for: "
                f"pass steps={taken} or more when building the coverage"
            )
        dtype = torch.float64 if sequence.dtype == torch.float64 else torch.float32
        outputs = sequence.detach().to(dtype, copy=True)
        absent = torch.zeros(recording.size, dtype=torch.bool, device=outputs.device)
        for step in range(steps):
            name = f"{layer}[{step}]"
            if step >= taken:
                recording.layers[name] = outputs.new_zeros(recording.size, outputs.shape[2])
                recording.present[name] = absent
                continue
            recording.layers[name] = outputs[:, step]
            if padding is not None:
                recording.present[name] = padding.step(step).to(outputs.device)

    def _complete(self, recording: _Recording) -> None:
        """Check that every chosen layer ran; fill in calls of recurrent cells that shorter inputs lack."""
        silent = [name for name in self.chosen if name not in recording.calls]
        if silent:
            raise LayerError(
                f"layer {silent[0]!r} did not run in this forward pass"
                + (f" (nor did {len(silent) - 1} more)" if len(silent) > 1 else "")
                + f"; leave it out, for example with layers='!{silent[0]}'"
            )
        if not self._widths_checked:
            # Once: a layer whose width changes later does not fit the layout.
            for name, module in self.chosen.items():
                if name in recording.layers:
                    require_whole(name, recording.layers[name], declared_width(module))
            self._widths_checked = True
        order = list(recording.layers)
        for name in self._cells:
            self._complete_cell(recording, name)
        if len(recording.layers) > len(order):
            recording.layers = {layer: recording.layers[layer] for layer in with_missing_steps(order, self._steps)}

    def _complete_cell(self, recording: _Recording, name: str) -> None:
        made = recording.calls[name]
        expected = self._steps.setdefault(name, self._most_steps or made)
        if made > expected:
            raise InputError(
                f"layer {name!r} ran {made} steps, more than the {expected} it was set up for: "
                f"pass steps={made} or more when building the coverage"
            )
        like = recording.layers[name]
        for index in range(1, expected):
            layer = f"{name}#{index}"
            if index >= made:
                recording.layers[layer] = torch.zeros_like(like)
                recording.present[layer] = torch.zeros(recording.size, dtype=torch.bool, device=like.device)
            elif recording.padding is not None:
                recording.present[layer] = recording.padding.step(index).to(like.device)
        if recording.padding is not None:
            recording.present[name] = recording.padding.step(0).to(like.device)


def with_missing_steps(order: Sequence[str], steps: Mapping[str, int]) -> list[str]:
    """Layers in execution order, with the calls of recurrent cells that longer inputs would have made.

    A missing step stands where a longer loop would have put it: behind the step before, and where cells take turns,
    behind that of all that do.

    >>> with_missing_steps(["a", "b", "a#1", "b#1", "fc"], {"a": 3, "b": 3})
    ['a', 'b', 'a#1', 'b#1', 'a#2', 'b#2', 'fc']
    >>> with_missing_steps(["a", "a#1", "b", "b#1", "fc"], {"a": 3, "b": 3})
    ['a', 'a#1', 'a#2', 'b', 'b#1', 'b#2', 'fc']
    """
    placed = list(order)
    cells = [name for name in order if name in steps]
    turns = {name: _taking_turns(order, name, cells) for name in cells}
    for index in range(1, max((steps[name] for name in cells), default=0)):
        for name in cells:
            if index < steps[name] and f"{name}#{index}" not in placed:
                before = [_call(other, index - 1) for other in turns[name]] + [
                    _call(other, index) for other in turns[name]
                ]
                behind = max(placed.index(layer) for layer in before if layer in placed)
                placed.insert(behind + 1, f"{name}#{index}")
    return placed


def _taking_turns(order: Sequence[str], name: str, cells: Sequence[str]) -> list[str]:
    """The cells called between the first two calls of one, and that one."""
    if f"{name}#1" not in order:
        return [name]
    first, second = order.index(name), order.index(f"{name}#1")
    others = [other for other in cells if first < order.index(other) < second]
    earlier = [
        other for other in cells if f"{other}#1" in order and order.index(other) < first < order.index(f"{other}#1")
    ]
    return [*earlier, name, *others]


def _call(name: str, index: int) -> str:
    return f"{name}#{index}" if index else name
