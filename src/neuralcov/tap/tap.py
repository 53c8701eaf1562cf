"""The tap: hooks on the chosen layers for the length of one block, and a model run that fills a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neuralcov.core.activations import Activations
from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.ledger import Finding
from neuralcov.tap.inputs import Batch, Padding, batch_size, call, first_tensor, padding_of, to_device
from neuralcov.tap.kinds import Kind, kind_of, multiplies_by_weights, static_width
from neuralcov.tap.masks import LayerMasks, MaskNotes, Masks, Watched
from neuralcov.tap.predict import OutputRange, checked_classes, predicted_classes, scores_of
from neuralcov.tap.preserve import original_module, preserved
from neuralcov.tap.reduce import to_neurons
from neuralcov.tap.relevance import layer_relevance, relevance_tape
from neuralcov.tap.scopes import Taker
from neuralcov.tap.select import LayerChoice, choose_layers
from neuralcov.tap.signatures import form_of
from neuralcov.tap.steps import with_missing_steps
from neuralcov.tap.tape import Tape


@dataclass
class _Recording:
    """What the hooks gather during one run of the model."""

    size: int
    masks: Masks
    steps: dict[str, int]
    layers: dict[str, Tensor] = field(default_factory=dict)
    present: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    cells: dict[str, LayerMasks | None] = field(default_factory=dict)
    tape: Tape | None = None


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
        self._cells = [name for name, module in self.chosen.items() if kind_of(module).cell]
        self.batch_axis = batch_axis
        self._predict = predict
        self._device = None if device is None else torch.device(device)
        self._mode = mode
        self._watched = Watched.of(self.model, self.chosen)
        self._mask_notes, self._range = MaskNotes(), OutputRange()
        self._steps: dict[str, int] = {}
        self._most_steps = steps
        self._depth = 0
        self._recording: _Recording | None = None

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

    def widths(self) -> dict[str, int]:
        """Neurons of the chosen modules that tell them without being run."""
        known = {name: static_width(module) for name, module in self.chosen.items()}
        return {name: width for name, width in known.items() if width is not None}

    def expect(self, layers: Collection[str]) -> None:
        """Go on with as many time steps as these layers have, which an earlier run recorded."""
        unrolled = [layer.rpartition("[")[0] for layer in layers if layer.endswith("]")]
        called = [name for layer in layers if (name := layer.partition("#")[0]) in self._cells]
        self._steps |= Counter(name for name in unrolled if name.partition("#")[0] in self.chosen) | Counter(called)

    def forget_steps(self) -> None:
        """Let the next batch say again how many time steps there are."""
        self._steps = {}

    def findings(self) -> list[Finding]:
        """What could not be masked. Waits for the device."""
        return self._mask_notes.findings()

    def output_findings(self) -> list[Finding]:
        """What all outputs seen so far say about how classes are read off them. Waits for the device."""
        return self._range.findings()

    @contextmanager
    def open(self) -> Iterator[None]:
        """One block: hooks are added at its start and gone at its end, exception or not."""
        if self._depth:
            yield
            return
        handles = []
        self._depth += 1
        try:
            with preserved(self.model, self._mode):
                for name, module in self.chosen.items():
                    taker = self._watched.layers.get(name)
                    hook = partial(self._hook, name, kind_of(module), taker)
                    handles.append(module.register_forward_hook(hook, with_kwargs=taker is not None))
                for module, taker in self._watched.around:
                    handles.append(module.register_forward_pre_hook(partial(self._enter, taker), with_kwargs=True))
                    handles.append(module.register_forward_hook(self._leave, always_call=True))
                yield
        finally:
            self._depth -= 1
            for handle in handles:
                handle.remove()

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
        lengths = batch.lengths if lengths is None else lengths
        masks = Masks(size, padding_of(inputs, lengths, size, self.batch_axis))
        if isinstance(inputs, (tuple, list)) and any(isinstance(part, Mapping) for part in inputs):
            masks.enter(Taker(form_of(self.model), mappings=True), tuple(inputs), {})
        recording = _Recording(size, masks, dict(self._steps))
        if relevance:
            self._refuse_recurrent()
            recording.tape = relevance_tape(self.model)
        # Relevance is handed back by autograd, which tensors of inference mode take no part in.
        grad_mode = torch.inference_mode(False) if relevance else nullcontext()
        with grad_mode:
            with self.open(), torch.no_grad():
                self._recording = recording
                try:
                    with recording.tape or nullcontext():
                        output = call(self.model, inputs)
                finally:
                    self._recording = None
            self._complete(recording)
            classes = self._classes(output, size) if predictions or relevance else None
            explained = None if classes is None else self._explain(recording, output, classes)
        self._steps = recording.steps
        self._mask_notes.take(recording.masks)
        home = next(iter(recording.layers.values())).device
        activations = Activations(
            layers=recording.layers,
            labels=None if batch.labels is None else batch.labels.to(home),
            predictions=None if classes is None else classes.to(home),
            relevance=explained,
            present=recording.present,
        )
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
        classes = predicted_classes(output, size)
        self._range.observe(scores_of(output))
        return classes

    def _enter(self, taker: Taker, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._recording is not None:
            self._recording.masks.enter(taker, args, kwargs)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._recording is not None:
            self._recording.masks.leave()

    def _hook(self, name: str, kind: Kind, taker: Taker | None, module: nn.Module, args: Any, *rest: Any) -> None:
        """Record what a layer returned, the last argument; its keywords come before if it takes masks itself."""
        recording = self._recording
        if recording is None:
            return
        output = rest[-1]
        index = recording.calls.get(name, 0)
        recording.calls[name] = index + 1
        layer = f"{name}#{index}" if index else name
        masks = recording.masks.of_layer(layer, args, rest[0], taker)
        if kind.cell:
            recording.cells.setdefault(name, masks)
        if kind.recurrent:
            self._record_steps(recording, layer, kind, output, masks)
            return
        tensor = first_tensor(output)
        if tensor is None:
            raise LayerError(f"layer {layer!r} returned a {type(output).__name__} without a tensor; leave it out")
        if recording.tape is None:
            recording.layers[layer] = to_neurons(tensor, recording.size, kind, layer, masks)
            return
        with recording.tape.paused():
            recording.tape.mark(layer, tensor, weighted=multiplies_by_weights(module))
            recording.layers[layer] = to_neurons(tensor, recording.size, kind, layer, masks)

    def _record_steps(
        self, recording: _Recording, layer: str, kind: Kind, output: Any, masks: LayerMasks | None
    ) -> None:
        """Unroll a recurrent module: every time step is a layer of its own."""
        sequence, padding = output[0], None
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
        if padding is None and masks is not None:
            padding = masks.steps(sequence.shape[1])
        steps = recording.steps.setdefault(layer, self._most_steps or sequence.shape[1])
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
        order = list(recording.layers)
        for name in self._cells:
            self._complete_cell(recording, name)
        if len(recording.layers) > len(order):
            recording.layers = {layer: recording.layers[layer] for layer in with_missing_steps(order, recording.steps)}

    def _complete_cell(self, recording: _Recording, name: str) -> None:
        made = recording.calls[name]
        expected = recording.steps.setdefault(name, self._most_steps or made)
        if made > expected:
            raise InputError(
                f"layer {name!r} ran {made} steps, more than the {expected} it was set up for: "
                f"pass steps={made} or more when building the coverage"
            )
        masks = recording.cells[name]
        padding = None if masks is None else masks.steps(made)
        like = recording.layers[name]
        for index in range(1, expected):
            layer = f"{name}#{index}"
            if index >= made:
                recording.layers[layer] = torch.zeros_like(like)
                recording.present[layer] = torch.zeros(recording.size, dtype=torch.bool, device=like.device)
            elif padding is not None:
                recording.present[layer] = padding.step(index).to(like.device)
        if padding is not None:
            recording.present[name] = padding.step(0).to(like.device)
