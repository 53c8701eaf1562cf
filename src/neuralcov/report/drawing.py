"""Parts of charts as SVG text: numbers, words, frames and scales, for the charts in ``svg.py`` and the map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
Scale = Callable[[float], float]


def short(number: float) -> str:
    """Format a coordinate with one decimal, or none.

    >>> short(3.0), short(2.26), short(-0.04)
    ('3', '2.3', '0')
    """
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def text_at(x: float, y: float, text: str, kind: str = "t", anchor: str = "start") -> str:
    """Return words at a place, escaped."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{short(x)}" y="{short(y)}"{where}>{escape(text)}</text>'


def frame(width: float, height: float, body: str, *, kind: str, label: str | None) -> str:
    """Return a chart of this size; without a label it is for decoration alone."""
    told = 'aria-hidden="true"' if label is None else f'role="img" aria-label="{escape(label)}"'
    return f'<svg class="{kind}" viewBox="0 0 {short(width)} {short(height)}" {told}>{body}</svg>'


def scale_to(low: float, high: float, start: float, end: float) -> Scale:
    """Return what takes low … high to start … end; all goes to the middle if there is no width."""
    width = high - low
    return lambda value: start + (end - start) * ((value - low) / width if width else 0.5)


def finite(points: Points) -> list[tuple[float, float]]:
    """Return the points that have a place."""
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
