"""Recurrent layers: every time step is a layer of its own, and shorter inputs lack the later ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from neuralcov.core.errors import InputError, LayerError
from neuralcov.tap.axes import OutputAxes, axes_of
from neuralcov.tap.forward_pass import ForwardPass
from neuralcov.tap.inputs import Padding
from neuralcov.tap.masks import LayerMasks


class TimeSteps:
    """How many time steps each recurrent module and cell takes, as the first pass said or somebody did.

    Args:
        chosen: the modules that are layers.
        most: time steps, if somebody said how many.
    """

    def __init__(self, chosen: Mapping[str, nn.Module], most: int | None) -> None:
        self.most = most
        self._chosen = chosen
        self._cells = [name for name, module in chosen.items() if axes_of(module).cell]
        self._known: dict[str, int] = {}

    def fork(self) -> TimeSteps:
        """Return a copy that goes its own way."""
        twin = TimeSteps(self._chosen, self.most)
        twin._known = dict(self._known)
        return twin

    def begin(self) -> dict[str, int]:
        """Return what is known, for a pass that may learn more."""
        return dict(self._known)

    def keep(self, steps: dict[str, int]) -> None:
        """Keep what a pass has learnt."""
        self._known = steps

    def forget(self) -> None:
        """Let the next pass say again how many time steps there are."""
        self._known = {}

    def expect(self, layers: Iterable[str]) -> None:
        """Go on with the time steps that an earlier measurement recorded."""
        names = list(layers)
        unrolled = [layer.rpartition("[")[0] for layer in names if layer.endswith("]")]
        called = [name for layer in names if (name := layer.partition("#")[0]) in self._cells]
        self._known |= Counter(name for name in unrolled if name.partition("#")[0] in self._chosen) | Counter(called)

    def record(
        self, forward_pass: ForwardPass, layer: str, kind: OutputAxes, output: Any, masks: LayerMasks | None
    ) -> None:
        """Unroll a recurrent module: every time step is a layer of its own."""
        sequence, padding = output[0], None
        if isinstance(sequence, PackedSequence):
            sequence, lengths = pad_packed_sequence(sequence, batch_first=True)
            padding = Padding.of_mask((torch.arange(sequence.shape[1]) < lengths[:, None]).to(sequence.device))
        elif kind.batch_axis == 1:
            sequence = sequence.movedim(1, 0)
        if sequence.dim() != 3 or sequence.shape[0] != forward_pass.size:
            raise LayerError(
                f"layer {layer!r} gave shape {tuple(output[0].shape)} for a batch of {forward_pass.size}: "
                "expected a batched sequence; check batch_first and batch_axis="
            )
        if padding is None and masks is not None:
            padding = masks.steps(sequence.shape[1])
        steps = forward_pass.steps.setdefault(layer, self.most or sequence.shape[1])
        taken = sequence.shape[1]
        if taken > steps:
            raise InputError(
                f"layer {layer!r} ran {taken} steps, more than the {steps} it was set up for: "
                f"pass steps={taken} or more when building the coverage"
            )
        dtype = torch.float64 if sequence.dtype == torch.float64 else torch.float32
        outputs = sequence.detach().to(dtype, copy=True)
        absent = torch.zeros(forward_pass.size, dtype=torch.bool, device=outputs.device)
        for step in range(steps):
            name = f"{layer}[{step}]"
            if step >= taken:
                forward_pass.layers[name] = outputs.new_zeros(forward_pass.size, outputs.shape[2])
                forward_pass.present[name] = absent
                continue
            forward_pass.layers[name] = outputs[:, step]
            if padding is not None:
                forward_pass.present[name] = padding.step(step).to(outputs.device)

    def complete(self, forward_pass: ForwardPass) -> None:
        """Add the calls of recurrent cells that shorter inputs lack, each where a longer loop would have put it."""
        order = list(forward_pass.layers)
        for name in self._cells:
            if name in forward_pass.layers:
                self._complete_cell(forward_pass, name)
        if len(forward_pass.layers) > len(order):
            forward_pass.layers = {
                layer: forward_pass.layers[layer] for layer in with_missing_steps(order, forward_pass.steps)
            }

    def _complete_cell(self, forward_pass: ForwardPass, name: str) -> None:
        made = forward_pass.calls[name]
        expected = forward_pass.steps.setdefault(name, self.most or made)
        if made > expected:
            raise InputError(
                f"layer {name!r} ran {made} steps, more than the {expected} it was set up for: "
                f"pass steps={made} or more when building the coverage"
            )
        masks = forward_pass.cells[name]
        padding = None if masks is None else masks.steps(made)
        like = forward_pass.layers[name]
        for index in range(1, expected):
            layer = f"{name}#{index}"
            if index >= made:
                forward_pass.layers[layer] = torch.zeros_like(like)
                forward_pass.present[layer] = torch.zeros(forward_pass.size, dtype=torch.bool, device=like.device)
            elif padding is not None:
                forward_pass.present[layer] = padding.step(index).to(like.device)
        if padding is not None:
            forward_pass.present[name] = padding.step(0).to(like.device)


def with_missing_steps(order: Sequence[str], steps: Mapping[str, int]) -> list[str]:
    """Return layers in execution order, with the calls of recurrent cells that longer inputs would have made.

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
    """Return the cells called between the first two calls of one, and that one."""
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
