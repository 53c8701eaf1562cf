"""What one run of a model leaves behind: outputs reduced to neurons, each row given to the input it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, TypeAlias

import torch
from torch import Tensor

from neuralcov.core.activations import Activations, statistics_device
from neuralcov.core.errors import LayerError
from neuralcov.tap.axes import OutputAxes, feature_axis
from neuralcov.tap.inputs import Batch
from neuralcov.tap.layers import module_name
from neuralcov.tap.masks import LayerMasks, Masks
from neuralcov.tap.members import Members
from neuralcov.tap.outputs import MEAN, TOKENS, plain_neurons
from neuralcov.tap.probe import Probe, capturing
from neuralcov.tap.rows import Note, RowOrder, by_owner, order_by_shape, own_rows
from neuralcov.tap.tape import Tape
from neuralcov.tap.tokens import TokenRows

_PLAIN = RowOrder(0)

Reduce: TypeAlias = "Callable[[int, str, OutputAxes, Tensor, LayerMasks | None, RowOrder], Tensor]"


@dataclass(frozen=True, eq=False)
class Pending:
    """An output whose order of rows is not known yet, kept to be reduced later."""

    output: Tensor
    kind: OutputAxes
    masks: LayerMasks | None


@dataclass
class ForwardPass:
    """What the hooks gather during one run of the model."""

    members: Members
    masks: Masks
    steps: dict[str, int]
    layers: dict[str, Tensor] = field(default_factory=dict)
    present: dict[str, Tensor] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    cells: dict[str, LayerMasks | None] = field(default_factory=dict)
    thread: int = field(default_factory=get_ident)
    tape: Tape | None = None
    pending: dict[str, Pending] = field(default_factory=dict)
    owned: dict[str, RowOrder | Tensor] = field(default_factory=dict)
    # Which tokens were given to an expert, by layer; where every token is an input, the rows that became of them.
    routed: dict[str, Tensor] = field(default_factory=dict)
    rows: TokenRows | None = None
    probed: bool = False
    # Nobody asks for more than neurons: whose rows they are is known, and no rank has a part of them only.
    plain: bool = False
    # Somebody else makes the pass: nothing may be asked of the model, and what goes wrong waits until it has run.
    heard: bool = False
    # Of the inputs as they were before the run: content keys, and see ``moments_of``.
    keys: Tensor | None = None
    moments: Tensor | None = None
    problem: Exception | None = None
    unread: dict[str, str] = field(default_factory=dict)
    # In a run of the probe, in which nothing else is recorded.
    notes: dict[str, Note] | None = None

    @property
    def size(self) -> int:
        """Return B, the number of inputs."""
        return self.members.size

    def divide(self) -> None:
        """Make every unmasked token a row of its own, if any layer has tokens."""
        masks = {layer: weights.tokens for layer, weights in self.masks.used.items()} | self.routed
        self.rows = TokenRows.of(self.layers, masks)
        if self.rows is not None:
            self.layers, self.present = self.rows.of_layers(self.layers, self.present, masks)

    def activations(
        self,
        batch: Batch,
        classes: Tensor | None,
        relevance: dict[str, Tensor] | None,
        *,
        by_token: bool,
    ) -> Activations:
        """Return what was gathered as one batch, on the device of the layers.

        Args:
            batch: the labels and names of the inputs.
            classes: those that the model chose.
            relevance: of every layer's neurons.
            by_token: whether every unmasked token is a row of its own.
        """
        home = next(iter(self.layers.values())).device
        keys, moments = (_moved(told, statistics_device(home)) for told in (self.keys, self.moments))
        names, labels = batch.names(self.size), None if batch.labels is None else batch.labels.to(home)
        classes = None if classes is None else classes.to(home)
        if by_token:
            self.divide()
        rows = self.rows
        of_tokens: dict[str, Any] = {}
        if rows is not None:
            of_tokens = {"tokens": rows.table, "sources": None if keys is None else rows.repeat(keys)}
            keys, names = None if keys is None else rows.keys(keys), rows.names(names)
            labels = None if labels is None else rows.repeat(labels)
            classes = None if classes is None else rows.repeat(classes)
            moments = None
        return Activations(
            layers=self.layers,
            labels=labels,
            predictions=classes,
            relevance=relevance,
            present=self.present,
            keys=keys,
            moments=moments,
            **names,
            **of_tokens,
        )


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device, non_blocking=True)


class RowReader:
    """Gives the rows of outputs to their inputs, as the probe found or somebody said.

    Args:
        probe: what knows whose the rows are.
        reduce: from the number of inputs, a layer, its kind, output, masks and order of rows to its neurons.
    """

    def __init__(self, probe: Probe, reduce: Reduce) -> None:
        self._probe, self._reduce = probe, reduce

    def record_plain(self, forward_pass: ForwardPass, layer: str, kind: OutputAxes, output: object) -> bool:
        """Record the output of a usual layer in few steps, if it is one; return whether it was."""
        order = self._probe.known.orders.get(layer)
        if order is None and forward_pass.heard and layer not in self._probe.known.left_out:
            order = _PLAIN  # of the shapes that are read here, the batch can lie nowhere else
        if order is None or order.axis or order.per_input != 1 or type(output) is not Tensor:
            return False
        neurons = plain_neurons(output, forward_pass.size, kind)
        if neurons is None or kind.recurrent or kind.cell:
            return False
        forward_pass.layers[layer] = neurons
        return True

    def record(
        self, forward_pass: ForwardPass, layer: str, kind: OutputAxes, output: Tensor, masks: LayerMasks | None
    ) -> None:
        """Reduce an output to neurons, or keep it until the order of its rows is found."""
        size, known = forward_pass.size, self._probe.known
        owners = self._probe.owners(layer, output, size, masks) if self._probe.has_owners else None
        if owners is not None:
            if known.pool != MEAN:
                self._record_routed(forward_pass, layer, kind, output, masks)
                return
            forward_pass.owned[layer] = owners
            forward_pass.layers[layer], forward_pass.present[layer] = by_owner(output, owners, size, kind)
            return
        shape = own_rows(output, size).shape
        order = known.order_of(_asked_as(layer, kind), shape, size, forward_pass.members.axes)
        if order is None and forward_pass.heard:
            found = known.heard_order(layer, shape, size, kind)
            if isinstance(found, str):
                forward_pass.unread[layer] = found
                return
            order = found
        elif order is None and (size <= 1 or known.why_not or capturing()):
            order = order_by_shape(shape, size, kind, layer, known.why_not)
        if order is None:
            forward_pass.layers[layer] = output  # holds the layer's place
            forward_pass.pending[layer] = Pending(output.detach().clone(), kind, masks)
        elif size == 1 and not output.numel():
            width = output.shape[feature_axis(output.shape, kind)]
            forward_pass.layers[layer] = torch.zeros(1, width, device=output.device)
            forward_pass.present[layer] = torch.zeros(1, dtype=torch.bool, device=output.device)
        else:
            forward_pass.owned[layer] = order
            forward_pass.layers[layer] = self._reduce(size, layer, kind, output, masks, order)

    def _record_routed(
        self, forward_pass: ForwardPass, layer: str, kind: OutputAxes, output: Tensor, masks: LayerMasks | None
    ) -> None:
        """Record what an expert gave for every token, or refuse rows of which only a mean is known."""
        size, known = forward_pass.size, self._probe.known
        routed = self._probe.routed(layer, output, size, masks) if known.pool == TOKENS else None
        if routed is None:
            raise LayerError(
                f"layer {layer!r} has rows by rows= or by experts, which are averaged: leave pool= or the layer out"
            )
        tokens, per_input = routed
        neurons, present = by_owner(output, tokens, size * per_input, kind)
        forward_pass.layers[layer] = neurons.view(size, per_input, neurons.shape[1])
        forward_pass.routed[layer] = present.view(size, per_input)

    def settle(self, forward_pass: ForwardPass, fixed: Collection[str], silent: Sequence[str]) -> None:
        """Reduce outputs whose order of rows was not known when they came, and leave out those that have none.

        Args:
            forward_pass: of a run that has ended.
            fixed: layers that have been measured, which cannot be left out any more.
            silent: modules that never fired.
        """
        known = self._probe.known
        if forward_pass.pending:
            self._settle(forward_pass, fixed)
        if forward_pass.unread:
            known.drop(forward_pass.unread, fixed)
        if known.unsaid:
            known.leave_out_siblings(silent)
            known.say()

    def _settle(self, forward_pass: ForwardPass, fixed: Collection[str]) -> None:
        known, size, problems = self._probe.known, forward_pass.size, {}
        if not forward_pass.probed:
            self._probe.ask(forward_pass.members, fixed, forward_pass.pending)
        for layer, kept in forward_pass.pending.items():
            name, shape = _asked_as(layer, kept.kind), kept.output.shape
            order = known.order_of(name, shape, size, forward_pass.members.axes)
            if order is None and known.why_not:
                order = order_by_shape(shape, size, kept.kind, layer, known.why_not)
            if order is not None:
                forward_pass.owned[layer] = order
                forward_pass.layers[layer] = self._reduce(size, layer, kept.kind, kept.output, kept.masks, order)
                continue
            found = known.orders.get(name)
            why = "it does not fire in every pass" if found is None else f"its rows were found {found}"
            problems[layer] = known.left_out.get(name, f"shape {tuple(shape)} for {size} inputs: {why}")
        known.drop(problems, fixed)
        for layer in problems:
            del forward_pass.layers[layer]
            if forward_pass.tape is not None:
                forward_pass.tape.layers.pop(layer, None)


def _asked_as(layer: str, kind: OutputAxes) -> str:
    """Return the name under which the probe knows a layer: calls of a recurrent cell are steps of one loop."""
    return module_name(layer) if kind.cell else layer
