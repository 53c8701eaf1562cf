"""Where the time steps that a recurrent cell did not take stand among the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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
