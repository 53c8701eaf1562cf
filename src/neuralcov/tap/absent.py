"""Layers that did not fire in a pass: where they stand among the others, and how wide they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from neuralcov.core.errors import LayerError
from neuralcov.tap.axes import kind_of, static_width


def fill_absent(layers: dict[str, Tensor], present: dict[str, Tensor], widths: Mapping[str, int], size: int) -> None:
    """Add zeros for layers that no input reached, and say so in ``present``."""
    like = next(iter(layers.values()))
    for layer, width in widths.items():
        if layer not in layers:
            layers[layer] = torch.zeros(size, width, dtype=like.dtype, device=like.device)
            present[layer] = torch.zeros(size, dtype=torch.bool, device=like.device)


def with_silent_modules(
    widths: Mapping[str, int],
    chosen: Mapping[str, nn.Module],
    silent: Sequence[str],
    known: Mapping[str, int],
    steps: int | None,
) -> dict[str, int]:
    """Widths of the layers that fired, with those of modules that did not, each behind the module defined before it.

    Args:
        widths: of the layers that fired, in execution order.
        chosen: all modules that are layers, in the order of their definition.
        silent: those that did not fire.
        known: widths that a run of the probe showed.
        steps: time steps of recurrent layers, if somebody said how many.
    """
    order = list(widths)
    found = dict(widths)
    behind = 0
    for name, module in chosen.items():
        if name in silent:
            added = _layers_of(name, module, steps)
            order[behind:behind] = added
            behind += len(added)
            found |= dict.fromkeys(added, _width_of(name, module, known, silent))
        else:
            behind = max([behind, *(place + 1 for place, layer in enumerate(order) if module_name(layer) == name)])
    return {layer: found[layer] for layer in order}


def module_name(layer: str) -> str:
    """The module behind a layer: ``fc`` for its second call, ``fc#1``, or ``rnn`` for a step, ``rnn[3]``."""
    return layer.partition("#")[0].partition("[")[0]


def never_fired(silent: Sequence[str]) -> LayerError:
    """The error that names modules which never fired."""
    return LayerError(
        f"layer {silent[0]!r} did not run in any forward pass"
        + (f" (nor did {len(silent) - 1} more)" if len(silent) > 1 else "")
        + f"; leave it out, for example with layers='!{silent[0]}'"
    )


def _layers_of(name: str, module: nn.Module, steps: int | None) -> list[str]:
    kind = kind_of(module)
    if not kind.recurrent and not kind.cell:
        return [name]
    if steps is None:
        raise LayerError(
            f"layer {name!r} did not run in the first forward pass, which tells how many steps it takes: "
            f"pass steps=, or leave it out, for example with layers='!{name}'"
        )
    if kind.recurrent:
        return [f"{name}[{step}]" for step in range(steps)]
    return [name, *(f"{name}#{step}" for step in range(1, steps))]


def _width_of(name: str, module: nn.Module, known: Mapping[str, int], silent: Sequence[str]) -> int:
    width = known.get(name, static_width(module))
    if width is None:
        raise never_fired([name, *(other for other in silent if other != name)])
    return width


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
