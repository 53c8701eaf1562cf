"""The tap: hooks on the chosen layers for the length of one block, and a model run that fills a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.findings import Finding, Unmeasured
from neuralcov.core.guards import with_ordinary_tensors
from neuralcov.core.layout import Layout
from neuralcov.tap.axes import has_batch_second, static_width
from neuralcov.tap.experts import ExpertRows
from neuralcov.tap.forward_pass import ForwardPass, RowReader
from neuralcov.tap.inputs import Batch, call, padding_of, to_device
from neuralcov.tap.known_layers import KnownLayers
from neuralcov.tap.known_rows import KnownRows
from neuralcov.tap.layer_hooks import LayerHooks, Listener
from neuralcov.tap.layers import LayerChoice, choose_layers, module_name
from neuralcov.tap.masks import MaskNotes, Masks, Watched
from neuralcov.tap.members import Members, as_arguments
from neuralcov.tap.moments import moments_of
from neuralcov.tap.options import check_options, device_of
from neuralcov.tap.outputs import MEAN, TOKENS, Decisions, scores_of
from neuralcov.tap.preserve import (
    Block,
    is_compiled,
    join,
    measured_pass,
    original_module,
    preserved,
    random_state_kept,
    turn_of,
)
from neuralcov.tap.probe import Probe
from neuralcov.tap.recurrent import TimeSteps
from neuralcov.tap.relevance import explain, refuse_recurrent, relevance_tape
from neuralcov.tap.rows import Note, Rows
from neuralcov.tap.scopes import Taker
from neuralcov.tap.shards import Shards
from neuralcov.tap.signatures import form_of
from neuralcov.tap.unmeasured import unmeasured


class Tap(LayerHooks):
    """Runs a model and gives the activations of its chosen layers.

    Hooks exist only within ``open``; the model is put into eval mode there (``mode="keep"`` leaves
    it) and is afterwards as it was. Outputs are reduced inside the hook, so that feature maps are never
    held and in-place activations cannot overwrite them.
    """

    def __init__(
        self,
        model: Any,
        layers: LayerChoice = None,
        *,
        predict: Callable[[Any], Any] | None = None,
        batch_axis: int = 0,
        device: torch.device | str | None = None,
        mode: str = "eval",
        steps: int | None = None,
        rows: Rows | None = None,
        pool: str = MEAN,
    ) -> None:
        model = check_options(
            model, predict=predict, batch_axis=batch_axis, mode=mode, steps=steps, rows=rows, pool=pool
        )
        self.model = original_module(model)
        self.compiled = is_compiled(model)
        self.chosen = choose_layers(self.model, layers)
        self._by_choice = layers is not None
        self._shards: Shards | None = None
        self._looked_for_shards = False
        self.batch_axis = batch_axis
        self._mode = mode
        self._device = None if device is None else torch.device(device)
        self._watched = Watched.of(self.model, self.chosen)
        self._mask_notes, self.decisions = MaskNotes(), Decisions(predict)
        self._steps = TimeSteps(self.chosen, steps)
        self._experts = ExpertRows(self.model, self.chosen)
        self._probe = Probe(self.model, self._noted, layers, rows, self._experts)
        known = self._probe.known
        known.pool, known.batch_second = pool, batch_axis != 0 or has_batch_second(self.model)
        self._reader = RowReader(self._probe, self._reduce)
        self._layers = KnownLayers(self.chosen, self._probe.known, self._steps)
        self._ran = False
        self._turn = turn_of(self.model)
        self._depth = 0
        self._handles: list[RemovableHandle] = []
        self._within: Block | None = None
        self._pass: ForwardPass | None = None
        self._listener: Listener | None = None

    def fork(self) -> Tap:
        """Copy this tap, with what it has found out, but without its block and its pass."""
        twin = copy.copy(self)
        twin._steps = self._steps.fork()
        twin._experts = ExpertRows(self.model, self.chosen)
        twin._probe = self._probe.fork(twin._noted, twin._experts)
        twin._reader = RowReader(twin._probe, twin._reduce)
        twin._layers = self._layers.fork(twin._probe.known, twin._steps)
        twin._depth, twin._handles, twin._within, twin._pass, twin._listener = 0, [], None, None, None
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A deep copy has a model of its own, whose passes others may measure too.
        vars(self).update(state)
        self._turn = turn_of(self.model)

    @property
    def device(self) -> torch.device:
        """Return where inputs go: where the model's first parameter lies, or as said for a model without any."""
        return device_of(self.model, self._device)

    @property
    def known_rows(self) -> KnownRows:
        """Return what was found out about the order of rows."""
        return self._probe.known

    @property
    def spread(self) -> bool:
        """Return whether chosen modules have parameters that are spread over several ranks."""
        return self._shards is not None

    @property
    def hook_ids(self) -> frozenset[int]:
        """Return the ids of the hooks that this tap has on modules."""
        return frozenset(handle.id for handle in self._handles)

    def unmeasured(self, layers: Collection[str] | None = None) -> Unmeasured:
        """Count the parameters that belong to none of these layers; by default to none of the chosen modules."""
        names = self.chosen if layers is None else {*layers, *map(module_name, layers)}
        measured = [module for name, module in self.chosen.items() if name in names]
        return unmeasured(self.model, measured, by_choice=self._by_choice)

    def widths(self) -> dict[str, int]:
        """Return the neurons of the chosen modules that tell them without being run."""
        known = {name: static_width(module) for name, module in self.chosen.items()}
        return {name: width for name, width in known.items() if width is not None}

    def expect(self, layers: Layout) -> None:
        """Go on with the layers that an earlier run recorded, and as many time steps."""
        self._layers.expect(layers)
        self._steps.expect(layers)

    def forget_steps(self) -> None:
        """Let the next batch say again how many time steps there are."""
        self._steps.forget()

    def findings(self) -> list[Finding]:
        """Return what could not be masked. Waits for the device."""
        return self._mask_notes.findings()

    def output_findings(self) -> list[Finding]:
        """Return what all outputs seen so far say about how classes are read off them. Waits for the device."""
        return self.decisions.findings()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open a block: hooks are added at its start and gone at its end, exception or not."""
        with self._turn:
            if self._listener is not None:
                raise InputError(
                    "this coverage listens to the passes that others make: run inputs through it after the block, or "
                    "through a fork() of it"
                )
            if self._within is None:
                self._begin(self._mode)
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
        if last and self._ran:
            self._layers.require_fired()

    def run(
        self,
        batch: Batch,
        *,
        lengths: Any = None,
        predictions: bool = False,
        readable: bool = False,
        relevance: bool = False,
    ) -> tuple[Activations, Any]:
        """Run the model on one batch, within a block of its own if none is open.

        Args:
            batch: inputs, and labels where known.
            lengths: time steps of each input, where shorter ones are padded.
            predictions: whether to read off the classes the model chose; an output that has none is refused.
            readable: whether to read them off where the output has some.
            relevance: whether to follow the logit of the chosen class back to every layer.

        Returns the activations and the model's output.
        """
        inputs = as_arguments(self.model, to_device(batch.inputs, self.device))
        members = Members.of(inputs, self.batch_axis, batch.batch, form_of(self.model))
        size = members.size
        if batch.labels is not None and batch.labels.shape[0] != size:
            raise InputError(
                f"{counted(batch.labels.shape[0], 'label')} for {counted(size, 'input')}: expected one label per input"
            )
        forward_pass = self._begin_pass(inputs, members, batch.lengths if lengths is None else lengths)
        if relevance:
            self._refuse_relevance()
            forward_pass.tape = relevance_tape(self.model)
        # Relevance is handed back by autograd, which tensors of inference mode take no part in.
        grad_mode = torch.inference_mode(False) if relevance else nullcontext()
        with self._turn, grad_mode:
            # A block that this thread alone has open needs no joining.
            alone = self._within is not None and self._within.thread == forward_pass.thread
            with nullcontext() if alone else self.open(), torch.no_grad():
                forward_pass.probed = self._probe.prepare(members, self._layers.widths)
                forward_pass.plain = not (relevance or self._shards or self._probe.has_owners)
                self._pass = forward_pass
                try:
                    with measured_pass(), forward_pass.tape or nullcontext():
                        output = call(self.model, inputs)
                finally:
                    self._pass = None
                self._layers.note(forward_pass.calls)
                self._ran = True
                self._reader.settle(forward_pass, self._layers.widths, self._layers.silent)
            activations = self._finish(forward_pass, batch, output, predictions=predictions, readable=readable)
        if torch.is_inference_mode_enabled() or (batch.labels is not None and batch.labels.is_inference()):
            activations = with_ordinary_tensors(activations)
        return activations, output

    def _finish(
        self, forward_pass: ForwardPass, batch: Batch, output: Any, *, predictions: bool, readable: bool
    ) -> Activations:
        """Return what a pass that has ended leaves."""
        size, relevance = forward_pass.size, forward_pass.tape is not None
        self._layers.complete(forward_pass, self.model)
        decided = predictions or relevance or (readable and self.decisions.readable(output, size))
        if self._shards is not None:
            own = decided and not self.decisions.told
            self._shards.check(forward_pass.layers, scores_of(output), classes=own)
        classes = self.decisions.read(output, size) if decided else None
        explained = None if classes is None else explain(forward_pass, self.chosen, output, classes)
        self._steps.keep(forward_pass.steps)
        self._mask_notes.take(forward_pass.masks)
        by_token = self.known_rows.pool == TOKENS
        return forward_pass.activations(batch, classes, explained, by_token=by_token)

    def probe(self, batch: Batch) -> None:
        """Find out from a batch of two or more which rows of each layer's output belong to which input."""
        inputs = as_arguments(self.model, to_device(batch.inputs, self.device))
        members = Members.of(inputs, self.batch_axis, batch.batch, form_of(self.model))
        if members.size < 2 or not members.only_tensors():
            held = counted(members.size, "input") if members.size < 2 else "inputs with objects other than tensors"
            raise InputError(f"a probe of {held}: expected two or more inputs that are tensors")
        with self.open(), torch.no_grad():
            if not self._probe.ask(members, self._layers.widths):
                raise InputError(f"{counted(members.size, 'input')} cannot be probed{self.known_rows.why_not}")
        self.known_rows.say()

    def _noted(self, members: Members, rows: Sequence[int]) -> dict[str, Note]:
        """Run the probe once: eval mode whatever the mode, random state and buffers put back."""
        part = members.take(rows)
        forward_pass = ForwardPass(replace(members, inputs=part, size=len(rows)), Masks(len(rows), None), {}, notes={})
        self._pass = forward_pass
        try:
            with measured_pass(), random_state_kept(self.model), preserved(self.model, "eval"):
                call(self.model, part)
        finally:
            self._pass = None
        return forward_pass.notes or {}

    def begin(self, inputs: Any, batch: int | str | None = None, *, relevance: bool) -> ForwardPass:
        """Begin a pass that somebody else makes; whoever calls this must ``stop`` it."""
        members = Members.of(inputs, self.batch_axis, batch, form_of(self.model))
        forward_pass = self._begin_pass(inputs, members, None)
        forward_pass.heard = True
        forward_pass.plain = not (relevance or self._shards or self._probe.has_owners)
        if relevance:
            self._refuse_relevance()
            if torch.is_inference_mode_enabled():
                raise InputError("relevance cannot be heard in inference mode: run the model under torch.no_grad()")
            forward_pass.tape = relevance_tape(self.model)
            forward_pass.tape.__enter__()  # type: ignore[no-untyped-call]
        self._pass = forward_pass
        return forward_pass

    def _refuse_relevance(self) -> None:
        """Refuse relevance where layers have no rule for it, or their neurons are no means, of which it has parts."""
        refuse_recurrent(self.chosen)
        if self.known_rows.pool != MEAN:
            raise InputError(f"relevance goes with pool='mean', not with pool={self.known_rows.pool!r}: leave NPC out")

    def stop(self) -> None:
        """End the pass that was begun, come what may."""
        forward_pass, self._pass = self._pass, None
        if forward_pass is not None and forward_pass.tape is not None:
            forward_pass.tape.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def read(self, forward_pass: ForwardPass, output: Any, *, predictions: bool, readable: bool) -> Activations:
        """Return what a pass that was heard, and has ended, leaves; see ``run``."""
        self._layers.note(forward_pass.calls)
        self._reader.settle(forward_pass, self._layers.widths, self._layers.silent)
        activations = self._finish(forward_pass, Batch(None), output, predictions=predictions, readable=readable)
        return with_ordinary_tensors(activations) if torch.is_inference_mode_enabled() else activations

    def _begin_pass(self, inputs: Any, members: Members, lengths: Any) -> ForwardPass:
        """Begin a pass, with what is known about padding before the run."""
        masks = Masks(members.size, padding_of(inputs, lengths, members.size, self.batch_axis))
        if isinstance(inputs, (tuple, list)) and any(isinstance(part, Mapping) for part in inputs):
            masks.enter(Taker(form_of(self.model), mappings=True), tuple(inputs), {})
        # Before the run: a model may overwrite its inputs.
        return ForwardPass(members, masks, self._steps.begin(), keys=members.keys(), moments=moments_of(members))
