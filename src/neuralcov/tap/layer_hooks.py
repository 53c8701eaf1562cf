"""Hooks on the chosen layers: what each of them returns goes into the pass under way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from neuralcov.core.errors import InputError, LayerError
from neuralcov.core.guards import Turn
from neuralcov.tap.axes import OutputAxes, axes_of, multiplies_by_weights
from neuralcov.tap.experts import ExpertRows
from neuralcov.tap.forward_pass import ForwardPass, RowReader
from neuralcov.tap.inputs import first_tensor
from neuralcov.tap.layers import module_name
from neuralcov.tap.masks import LayerMasks, Watched
from neuralcov.tap.outputs import MEAN, to_neurons
from neuralcov.tap.preserve import AS_IT_IS, Block, enter, is_measured_pass, leave, runs_again, within_transform
from neuralcov.tap.probe import Probe
from neuralcov.tap.recurrent import TimeSteps
from neuralcov.tap.rows import RowOrder
from neuralcov.tap.scopes import Taker
from neuralcov.tap.shards import Shards


class Listener(Protocol):
    """Hear of layers that were called outside a pass of the model."""

    def miss(self, layer: str) -> None:
        """Count a call of a layer that belongs to no pass."""


class LayerHooks:
    """Put hooks on layers, and on modules around them that are called with masks. Base of ``Tap``."""

    model: nn.Module
    chosen: Mapping[str, nn.Module]
    _turn: Turn
    _within: Block | None
    _ran: bool
    _looked_for_shards: bool
    _watched: Watched
    _experts: ExpertRows
    _probe: Probe
    _reader: RowReader
    _steps: TimeSteps
    _shards: Shards | None
    _handles: list[RemovableHandle]
    _pass: ForwardPass | None
    _listener: Listener | None

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Open a block in which passes that others make are heard: the model stays as it is but for the hooks.

        Args:
            listener: is told of calls of layers outside a pass.
        """
        with self._turn:
            if self._within is not None:
                raise InputError("this coverage has a block open already: end it before listening")
            self._begin(AS_IT_IS)
            self._listener = listener
        try:
            yield
        finally:
            with self._turn:
                self._listener = self._pass = None
                self._end()

    def _begin(self, mode: str) -> None:
        self._ran = False
        if not self._looked_for_shards:
            self._shards, self._looked_for_shards = Shards.among(self.chosen), True
        spread = self._shards.modules if self._shards is not None else ()
        self._within, self._handles = enter(self.model, mode), []
        try:
            self._add_hooks(spread)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        for handle in self._handles:
            handle.remove()
        block, self._within, self._handles = self._within, None, []
        if block is not None:
            leave(block)

    def _add_hooks(self, spread: Collection[str]) -> None:
        """Add the hooks, first of all those of layers that are ``spread`` over ranks."""
        for name, module in self.chosen.items():
            taker = self._watched.layers.get(name)
            hook = partial(self._hook, name, axes_of(module), taker)
            # Scripted modules refuse hooks by their own method, but fire them where Python calls them.
            self._handles.append(
                nn.Module.register_forward_hook(module, hook, prepend=name in spread, with_kwargs=taker is not None)
            )
        self._handles += self._experts.hooks()
        for module, around in self._watched.around:
            before = partial(self._enter, around)
            self._handles.append(nn.Module.register_forward_pre_hook(module, before, with_kwargs=True))
            self._handles.append(nn.Module.register_forward_hook(module, self._leave, always_call=True))

    def _enter(self, taker: Taker, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._pass is not None and self._pass.thread == get_ident():
            self._pass.masks.enter(taker, args, kwargs)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._pass is not None and self._pass.thread == get_ident():
            self._pass.masks.leave()

    def _hook(self, name: str, kind: OutputAxes, taker: Taker | None, module: nn.Module, args: Any, *rest: Any) -> None:
        """Record what a layer returned, the last argument; its keywords come before if it takes masks itself."""
        forward_pass = self._pass
        if forward_pass is None or forward_pass.thread != get_ident() or runs_again():
            # A pass that is not ours: the user's own, that of another coverage in another thread, or one for gradients.
            if self._listener is not None:
                self._listener.miss(name)
            return
        if not forward_pass.heard:
            self._take(forward_pass, name, kind, taker, module, args, *rest)
        elif forward_pass.problem is None and not is_measured_pass():
            # What goes wrong is ours, and must not look like an error of the model: it is raised when that has run.
            try:
                with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
                    self._take(forward_pass, name, kind, taker, module, args, *rest)
            except Exception as error:
                forward_pass.problem = error

    def _take(
        self,
        forward_pass: ForwardPass,
        name: str,
        kind: OutputAxes,
        taker: Taker | None,
        module: nn.Module,
        args: Any,
        *rest: Any,
    ) -> None:
        output, index = rest[-1], forward_pass.calls.get(name, 0)
        if isinstance(output, Tensor) and output.is_quantized:
            rest = (*rest[:-1], output := output.dequantize())
        if isinstance(output, Tensor) and output.is_nested:
            raise LayerError(
                f"layer {name!r} gave a nested tensor: pad the inputs (torch.nested.to_padded_tensor), pass lengths=, "
                "or leave it out"
            )
        forward_pass.calls[name] = index + 1
        if within_transform():
            forward_pass.unread[name] = "it runs within a transform of torch.func, which hides the batch or the numbers"
            return
        if forward_pass.plain and not index and self._reader.record_plain(forward_pass, name, kind, output):
            return
        layer = f"{name}#{index}" if index else name
        if forward_pass.notes is not None:
            self._probe.note(forward_pass.notes, layer, kind, output, forward_pass.size)
            return
        if (name if kind.cell else layer) in self._probe.known.left_out:
            return
        masks = forward_pass.masks.of_layer(layer, args, rest[0], taker)
        if kind.cell:
            forward_pass.cells.setdefault(name, masks)
        if kind.recurrent:
            self._steps.record(forward_pass, layer, kind, output, masks)
            return
        tensor = first_tensor(output)
        if tensor is None:
            raise LayerError(f"layer {layer!r} returned a {type(output).__name__} without a tensor; leave it out")
        if forward_pass.tape is None:
            self._reader.record(forward_pass, layer, kind, tensor, masks)
            return
        with forward_pass.tape.paused():
            if self._shards is not None:
                self._shards.refuse_relevance(layer, module, tensor)
            forward_pass.tape.mark(layer, tensor, weighted=multiplies_by_weights(module))
            self._reader.record(forward_pass, layer, kind, tensor, masks)

    def _reduce(
        self, size: int, layer: str, kind: OutputAxes, output: Tensor, masks: LayerMasks | None, order: RowOrder
    ) -> Tensor:
        """Reduce an output to neurons, of the whole layer where it is spread over ranks."""
        pool = self._probe.known.pool
        if self._shards is None:
            return to_neurons(output, size, kind, layer, masks, order=order, pool=pool)
        if pool != MEAN:
            raise LayerError(f"layer {layer!r} is spread over ranks, whose tokens are averaged: leave pool= out")

        def reduce(part: Tensor) -> Tensor:
            return to_neurons(part, size, kind, layer, masks, order=order)

        return self._shards.neurons(layer, self.chosen[module_name(layer)], kind, output, size, reduce)
