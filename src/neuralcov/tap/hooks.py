"""The tap: hooks on the chosen layers for the length of one block, and a model run that fills a batch."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils.hooks import RemovableHandle

from neuralcov.core.activations import Activations, home_of
from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.findings import Finding, Unmeasured
from neuralcov.core.guards import with_ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.tap.absent import fill_absent, module_name, never_fired, with_missing_steps, with_silent_modules
from neuralcov.tap.axes import Kind, declared_width, kind_of, multiplies_by_weights, static_width
from neuralcov.tap.experts import ExpertRows
from neuralcov.tap.inputs import Batch, Padding, call, first_tensor, padding_of, to_device
from neuralcov.tap.known_rows import KnownRows
from neuralcov.tap.layers import LayerChoice, choose_layers
from neuralcov.tap.masks import LayerMasks, MaskNotes, Masks, Watched
from neuralcov.tap.members import Members, as_arguments
from neuralcov.tap.outputs import OutputRange, checked_classes, predicted_classes, scores_of, to_neurons
from neuralcov.tap.preserve import Block, enter, join, leave, original_module, preserved, random_state_kept, turn_of
from neuralcov.tap.probe import Probe
from neuralcov.tap.recording import Recording, RowReader
from neuralcov.tap.relevance import layer_relevance, relevance_tape
from neuralcov.tap.rows import Note, RowOrder, Rows, by_owner
from neuralcov.tap.scopes import Taker
from neuralcov.tap.shards import Shards, require_whole
from neuralcov.tap.signatures import form_of
from neuralcov.tap.unmeasured import unmeasured

# What a layer's name has behind its module's: a further call, a time step.
_CALL = re.compile(r"(#\d+)?(\[\d+\])?$")


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
        rows: Rows | None = None,
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
        if rows is not None and not callable(rows):
            raise InputError(f"rows={rows!r}: expected a function from layer and output to the input of each row")
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
        self._watched = Watched.of(self.model, self.chosen)
        self._mask_notes, self._range = MaskNotes(), OutputRange()
        self._steps: dict[str, int] = {}
        self._most_steps = steps
        self._experts = ExpertRows(self.model, self.chosen)
        self._probe = Probe(self.model, self._noted, layers, rows, self._experts)
        self._reader = RowReader(self._probe, self._neurons)
        self._layers: dict[str, int] = {}
        self._fired: set[str] = set()
        self._ran = False
        self._turn = turn_of(self.model)
        self._depth = 0
        self._handles: list[RemovableHandle] = []
        self._within: Block | None = None
        self._recording: Recording | None = None

    def fork(self) -> Tap:
        """Copy this tap, with what it has found out, but without its block and its recording."""
        twin = copy.copy(self)
        twin._steps, twin._layers, twin._fired = dict(self._steps), dict(self._layers), set(self._fired)
        twin._experts = ExpertRows(self.model, self.chosen)
        twin._probe = self._probe.fork(twin._noted, twin._experts)
        twin._reader = RowReader(twin._probe, twin._neurons)
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
    def known_rows(self) -> KnownRows:
        """What was found out about the order of rows."""
        return self._probe.known

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

    def expect(self, layers: Layout) -> None:
        """Go on with the layers that an earlier run recorded, and as many time steps."""
        self._layers = dict(layers.widths)
        self._fired |= {module_name(layer) for layer in layers}
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
                last = not self._depth
                if last:
                    self._end()
        if last:
            self._require_fired()

    def _begin(self) -> None:
        self._ran = False
        if not self._looked_for_shards:
            self._shards, self._looked_for_shards = Shards.among(self.chosen), True
        spread = self._shards.modules if self._shards is not None else ()
        self._within, self._handles = enter(self.model, self._mode), []
        try:
            for name, module in self.chosen.items():
                taker = self._watched.layers.get(name)
                hook = partial(self._hook, name, kind_of(module), taker)
                # Scripted modules refuse hooks by their own method, but fire them where Python calls them.
                self._handles.append(
                    nn.Module.register_forward_hook(module, hook, prepend=name in spread, with_kwargs=taker is not None)
                )
            self._handles += self._experts.hooks()
            for module, around in self._watched.around:
                before = partial(self._enter, around)
                self._handles.append(nn.Module.register_forward_pre_hook(module, before, with_kwargs=True))
                self._handles.append(nn.Module.register_forward_hook(module, self._leave, always_call=True))
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
        inputs = as_arguments(self.model, to_device(batch.inputs, self.device))
        members = Members.of(inputs, self.batch_axis, batch.batch, form_of(self.model))
        size = members.size
        if batch.labels is not None and batch.labels.shape[0] != size:
            raise InputError(f"{batch.labels.shape[0]} labels for {size} inputs: expected one label per input")
        # Before the run: a model may overwrite its inputs.
        keys = members.keys()
        recording = self._recording_of(inputs, members, batch.lengths if lengths is None else lengths)
        if relevance:
            self._refuse_recurrent()
            recording.tape = relevance_tape(self.model)
        # Relevance is handed back by autograd, which tensors of inference mode take no part in.
        grad_mode = torch.inference_mode(False) if relevance else nullcontext()
        with self._turn, grad_mode:
            # A block that this thread alone has open needs no joining.
            alone = self._within is not None and self._within.thread == recording.thread
            with nullcontext() if alone else self.open(), torch.no_grad():
                recording.probed = self._probe.prepare(members, self._layers)
                self._recording = recording
                try:
                    with recording.tape or nullcontext():
                        output = call(self.model, inputs)
                finally:
                    self._recording = None
                self._fired.update(recording.calls)
                self._ran = True
                self._reader.settle(recording, self._layers, [n for n in self.chosen if n not in self._fired])
            self._complete(recording)
            if self._shards is not None:
                classes_read = (predictions or relevance) and self._predict is None
                self._shards.check(recording.layers, scores_of(output), classes=classes_read)
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
            keys=None if keys is None else keys.to(home_of(home), non_blocking=True),
        )
        if torch.is_inference_mode_enabled() or (batch.labels is not None and batch.labels.is_inference()):
            activations = with_ordinary_tensors(activations)
        return activations, output

    def probe(self, batch: Batch) -> None:
        """Find out which rows of each layer's output belong to which input, recording nothing.

        Args:
            batch: two or more inputs.
        """
        inputs = as_arguments(self.model, to_device(batch.inputs, self.device))
        members = Members.of(inputs, self.batch_axis, batch.batch, form_of(self.model))
        if members.size < 2 or not members.only_tensors():
            held = f"{members.size} inputs" if members.size < 2 else "inputs with objects other than tensors"
            raise InputError(f"a probe of {held}: expected two or more inputs that are tensors")
        with self.open(), torch.no_grad():
            if not self._probe.ask(members, self._layers):
                raise InputError(f"{members.size} inputs cannot be probed{self.known_rows.why_not}")
        self.known_rows.say()

    def _noted(self, members: Members, rows: Sequence[int]) -> dict[str, Note]:
        """One run of the probe: eval mode whatever the mode, random state and buffers put back."""
        part = members.take(rows)
        recording = Recording(replace(members, inputs=part, size=len(rows)), Masks(len(rows), None), {}, notes={})
        self._recording = recording
        try:
            with random_state_kept(self.model), preserved(self.model, "eval"):
                call(self.model, part)
        finally:
            self._recording = None
        return recording.notes or {}

    def _recording_of(self, inputs: Any, members: Members, lengths: Any) -> Recording:
        """Begin a recording, with what is known about padding before the run."""
        masks = Masks(members.size, padding_of(inputs, lengths, members.size, self.batch_axis))
        if isinstance(inputs, (tuple, list)) and any(isinstance(part, Mapping) for part in inputs):
            masks.enter(Taker(form_of(self.model), mappings=True), tuple(inputs), {})
        return Recording(members, masks, dict(self._steps))

    def _explain(self, recording: Recording, output: Any, classes: Tensor) -> dict[str, Tensor] | None:
        """The relevance of every layer's neurons, if it was asked for."""
        scores = scores_of(output)
        if recording.tape is None or scores is None:
            return None

        def reduce(layer: str, relevance: Tensor) -> Tensor:
            kind, rows = kind_of(self._module(layer)), recording.owned[layer]
            if isinstance(rows, Tensor):
                return by_owner(relevance, rows, recording.size, kind, total=True)[0]
            return to_neurons(relevance, recording.size, kind, layer, order=rows, total=True)

        found = layer_relevance(recording.tape, scores, classes, reduce)
        return {name: found[name] if name in found else torch.zeros_like(x) for name, x in recording.layers.items()}

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
        if self._recording is not None and self._recording.thread == get_ident():
            self._recording.masks.enter(taker, args, kwargs)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._recording is not None and self._recording.thread == get_ident():
            self._recording.masks.leave()

    def _hook(self, name: str, kind: Kind, taker: Taker | None, module: nn.Module, args: Any, *rest: Any) -> None:
        """Record what a layer returned, the last argument; its keywords come before if it takes masks itself."""
        recording = self._recording
        if recording is None or recording.thread != get_ident():
            # A pass that is not ours: the user's own, or that of another coverage in another thread.
            return
        output = rest[-1]
        index = recording.calls.get(name, 0)
        recording.calls[name] = index + 1
        layer = f"{name}#{index}" if index else name
        if recording.notes is not None:
            self._probe.note(recording.notes, layer, kind, output, recording.size)
            return
        if (name if kind.cell else layer) in self.known_rows.left_out:
            return
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
            self._reader.record(recording, layer, kind, tensor, masks)
            return
        with recording.tape.paused():
            if self._shards is not None:
                self._shards.refuse_relevance(layer, module, tensor)
            recording.tape.mark(layer, tensor, weighted=multiplies_by_weights(module))
            self._reader.record(recording, layer, kind, tensor, masks)

    def _neurons(
        self, size: int, layer: str, kind: Kind, output: Tensor, masks: LayerMasks | None, order: RowOrder
    ) -> Tensor:
        """Reduce an output to neurons, of the whole layer where it is spread over ranks."""
        if self._shards is None:
            return to_neurons(output, size, kind, layer, masks, order=order)

        def reduce(part: Tensor) -> Tensor:
            return to_neurons(part, size, kind, layer, masks, order=order)

        return self._shards.neurons(layer, self.chosen[module_name(layer)], kind, output, size, reduce)

    def _record_steps(
        self, recording: Recording, layer: str, kind: Kind, output: Any, masks: LayerMasks | None
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

    def _complete(self, recording: Recording) -> None:
        """Fill in layers that did not fire in this pass, and calls of recurrent cells that shorter inputs lack."""
        left_out = self.known_rows.left_out
        if not recording.layers:
            raise never_fired([name for name in self.chosen if name not in left_out])
        if not self._widths_checked:
            # Once: a layer whose width changes later does not fit the layout.
            for name, module in self.chosen.items():
                if name in recording.layers:
                    require_whole(name, recording.layers[name], declared_width(module))
            self._widths_checked = True
        order = list(recording.layers)
        for name in self._cells:
            if name in recording.layers:
                self._complete_cell(recording, name)
        if len(recording.layers) > len(order):
            recording.layers = {layer: recording.layers[layer] for layer in with_missing_steps(order, recording.steps)}
        if not self._layers:
            widths = {layer: outputs.shape[1] for layer, outputs in recording.layers.items()}
            silent = [name for name in self.chosen if name not in recording.calls and name not in left_out]
            self._layers = with_silent_modules(widths, self.chosen, silent, self.known_rows.widths, self._most_steps)
        if not self._layers.keys() <= recording.layers.keys():
            self._refuse_strangers(recording)
            fill_absent(recording.layers, recording.present, self._layers, recording.size)
            order = [*self._layers, *(layer for layer in recording.layers if layer not in self._layers)]
            recording.layers = {layer: recording.layers[layer] for layer in order}

    def _refuse_strangers(self, recording: Recording) -> None:
        """Refuse layers that did not fire because the model has another module in their place by now."""
        there = set(self.model.modules())
        gone = [name for name, module in self.chosen.items() if name not in recording.calls and module not in there]
        if gone:
            raise never_fired(gone)

    def _require_fired(self) -> None:
        """Refuse a block in which a layer did not fire that never did."""
        silent = [n for n in self.chosen if n not in self._fired and n not in self.known_rows.left_out]
        if self._ran and silent:
            raise never_fired(silent)

    def _complete_cell(self, recording: Recording, name: str) -> None:
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
