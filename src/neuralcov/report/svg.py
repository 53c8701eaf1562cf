"""Small charts as SVG text: a sparkline, growth with its forecast, bars. The map is in ``suite_map.py``.

Charts carry classes and no style, so that one style sheet colours them in light, dark and print, and a page may forbid
inline styles. All text in them is escaped. Every chart but the decorative ones has a label for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from neuralcov.report.drawing import Points, Scale, finite, frame, scale_to, short, text_at
from neuralcov.report.text import show_value
from neuralcov.results.sections import FewerInputs, GrowthCurve, Reference

# So many bars tell the shape of a sorted strip.
_STRIP = 24
_TICKS = 4
# Where the horizontal axis of a chart lies.
_FLOOR = 214.0


def _line(points: Points, kind: str) -> str:
    joined = " ".join(f"{short(x)},{short(y)}" for x, y in points)
    return f'<polyline class="{kind}" points="{joined}"/>' if len(points) > 1 else ""


def ticks(high: float, most: int = _TICKS) -> list[float]:
    """Return round numbers from 0 up to ``high``, at most so many above 0.

    >>> ticks(1.0), ticks(597), ticks(0.0)
    ([0.0, 0.5, 1.0], [0.0, 200.0, 400.0], [0.0])
    """
    if not high > 0 or not math.isfinite(high):
        return [0.0]
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if high / (power * factor) <= most - 0.5)
    return [round(i * step, 12) for i in range(int(high / step + 1e-9) + 1)]


def sparkline(curve: GrowthCurve, reference: Reference | None = None) -> str:
    """Draw how a value grew, without axes; the reference dashed. The card that holds it says the same in words."""
    own = finite([(0.0, 0.0), *zip(map(float, curve.sizes), curve.values, strict=True)])
    other = [] if reference is None else finite(list(zip(map(float, reference.sizes), reference.values, strict=True)))
    most = max(x for x, _ in own)
    # What the reference has beyond the suite's size is of no use beside it.
    other = [(x, y) for x, y in other if x <= most]
    high = max(y for _, y in own + other)
    low = min(y for _, y in own + other)
    across, up = scale_to(0, most, 2, 238), scale_to(low, high, 52, 6)
    end = own[-1]
    body = (
        '<path class="g" d="M120 6V52M0 52H240"/>'
        + _line([(across(x), up(y)) for x, y in other], "r")
        + _line([(across(x), up(y)) for x, y in own], "s")
        + f'<circle class="sf" cx="{short(across(end[0]))}" cy="{short(up(end[1]))}" r="3"/>'
    )
    return frame(244, 56, body, kind="spark", label=None)


def growth_chart(name: str, curve: GrowthCurve, reference: Reference | None = None) -> str:
    """Draw a criterion's value against the number of inputs: measured, forecast dotted, reference dashed."""
    own = finite([(0.0, 0.0), *zip(map(float, curve.sizes), curve.values, strict=True)])
    ahead = finite([(float(size), value) for size, value, _ in curve.forecast])
    other = [] if reference is None else finite(list(zip(map(float, reference.sizes), reference.values, strict=True)))
    most = max(x for x, _ in own + ahead)
    other = [(x, y) for x, y in other if x <= most]
    spread = [y + (error or 0.0) for _, y, error in curve.forecast if math.isfinite(y + (error or 0.0))]
    high = max([y for _, y in own + ahead + other] + spread)
    low = min(0.0, *(y for _, y in own + ahead + other))
    across, up = scale_to(0, most, 44, 462), scale_to(low, high, 214, 12)
    parts = [_axes(most, high, low, across, up)]
    if curve.errors is not None:
        parts.append(_band(curve, across, up))
    parts += [
        _line([(across(x), up(y)) for x, y in other], "r"),
        _line([(across(x), up(y)) for x, y in own], "s"),
        _line([(across(x), up(y)) for x, y in own[-1:] + ahead], "x"),
    ]
    for size, value, error in curve.forecast:
        if error is not None and math.isfinite(value + error):
            at = short(across(size))
            parts.append(f'<path class="e" d="M{at} {short(up(value - error))}V{short(up(value + error))}"/>')
    x, y = own[-1]
    parts.append(f'<circle class="sf" cx="{short(across(x))}" cy="{short(up(y))}" r="3.5"/>')
    label = f"{name} against the number of inputs: {show_value(y)} at {x:,.0f}"
    label += "".join(f", {show_value(value)} foreseen at {size:,.0f}" for size, value in ahead[-1:])
    return frame(476, 246, "".join(parts), kind="chart", label=label)


def count_chart(name: str, points: Points) -> str:
    """Draw a count against the seconds, as steps: between two readings it stays what it was."""
    own = finite(points)
    most, high = max((x for x, _ in own), default=1.0), max((y for _, y in own), default=0.0)
    across, up = scale_to(0, most or 1.0, 44, 462), scale_to(min(0.0, *(y for _, y in own)), high or 1.0, 214, 12)
    drawn: list[tuple[float, float]] = []
    for x, y in own:
        if drawn:
            drawn.append((across(x), drawn[-1][1]))
        drawn.append((across(x), up(y)))
    label = f"{name} over time: {show_value(own[-1][1])} after {own[-1][0]:,.0f} seconds"
    body = _axes(most or 1.0, high or 1.0, 0.0, across, up, " s") + _line(drawn, "s")
    return frame(476, 246, body, kind="chart", label=label)


def _axes(most: float, high: float, low: float, across: Scale, up: Scale, unit: str = " inputs") -> str:
    right = short(across(most))
    parts = []
    for tick in ticks(high):
        parts.append(f'<path class="g" d="M44 {short(up(tick))}H{right}"/>')
        parts.append(text_at(38, up(tick) + 4, f"{tick:,g}", anchor="end"))
    parts.append(f'<path class="axis" d="M44 {short(up(low))}H{right}"/>')
    for tick in ticks(most):
        anchor = "end" if across(tick) > across(most) - 16 else "start" if tick == 0 else "middle"
        told = f"{tick:,.0f}{unit}" if tick == ticks(most)[-1] else f"{tick:,.0f}"
        parts.append(text_at(across(tick), up(low) + 17, told, anchor=anchor))
    return "".join(parts)


def _band(curve: GrowthCurve, across: Scale, up: Scale) -> str:
    """Draw two standard errors to either side."""
    rows = [
        (size, value, error)
        for size, value, error in zip(curve.sizes, curve.values, curve.errors or (), strict=True)
        if math.isfinite(value + error)
    ]
    # Nothing is drawn below the axis.
    above = [(across(size), up(value + 2 * error)) for size, value, error in rows]
    below = [(across(size), min(_FLOOR, up(value - 2 * error))) for size, value, error in rows]
    joined = " ".join(f"{short(x)},{short(y)}" for x, y in above + below[::-1])
    return f'<polygon class="band" points="{joined}"/>' if rows else ""


def strip(values: Sequence[float], label: str) -> str:
    """Draw shares between 0 and 1, sorted from the smallest, as bars side by side.

    Of more than twenty-four values as many are drawn, evenly spaced: they are sorted, so that the shape stays.
    """
    shown = sorted(0.0 if math.isnan(value) else min(1.0, max(0.0, value)) for value in values)
    if len(shown) > _STRIP:
        shown = [shown[round(i * (len(shown) - 1) / (_STRIP - 1))] for i in range(_STRIP)]
    return _columns(shown, label)


def eigenvalue_bars(shares: Sequence[float], label: str) -> str:
    """Draw the largest eigenvalues, as shares of the trace, beside each other; the tallest fills the height."""
    top = max(shares, default=0.0) or 1.0
    return _columns([max(0.0, share / top) for share in shares], label)


def _columns(heights: Sequence[float], label: str) -> str:
    step = max(4, min(16, 192 // max(1, len(heights))))
    tall = [max(1, round(36 * height)) for height in heights]
    # Each column begins a step to the right of where the one before it began.
    drawn = "".join(f"m{step} {before}v-{height}" for before, height in pairwise([0, *tall]))
    moved = f'<path class="cols w{step}" transform="translate({-step / 2:g} 0)" d="M0 40{drawn}"/>' if drawn else ""
    body = f'<path class="g" d="M0 40H{step * len(heights)}"/>{moved}'
    return frame(200, 42, body, kind="strip", label=label)


def bar(share: float) -> str:
    """Draw one share as a bar; the number stands beside it. Its length is a class: a page has hundreds of them."""
    width = 0 if math.isnan(share) else round(100 * min(1.0, max(0.0, share)))
    return f'<i class="bar b{width}"></i>'


def bar_styles() -> str:
    """Return the lengths of bars as style rules."""
    return "".join(f".b{width}:after{{width:{width}%}}" for width in range(1, 101))


def apart(errors: float, label: str) -> str:
    """Draw by how many standard errors two figures are apart, on a scale of ±5, with a band of two to either side."""
    across = scale_to(-5, 5, 4, 116)
    at = across(max(-5.0, min(5.0, errors)))
    far = "tri" if abs(errors) > 2 else "sf"
    body = (
        f'<path class="soft" d="M{short(across(-2))} 1H{short(across(2))}V13H{short(across(-2))}z"/>'
        f'<path class="axis" d="M4 7H116M60 2V12"/><circle class="{far}" cx="{short(at)}" cy="7" r="4"/>'
    )
    return frame(120, 14, body, kind="apart", label=label)


def kept_chart(fewer: FewerInputs) -> str:
    """Draw which share of a value so many inputs keep, and which share of the mistakes where that is known."""
    most = float(max(fewer.sizes))
    across, up = scale_to(0, most, 44, 462), scale_to(0, 1, 214, 12)
    own = finite([(0.0, 0.0), *zip(map(float, fewer.sizes), fewer.shares, strict=True)])
    parts = [_axes(most, 1.0, 0.0, across, up)]
    if fewer.mistakes is not None:
        lost = finite([(0.0, 0.0), *zip(map(float, fewer.sizes), fewer.mistakes, strict=True)])
        parts.append(_line([(across(x), up(y)) for x, y in lost], "m"))
    parts.append(_line([(across(x), up(y)) for x, y in own], "s"))
    label = f"share of {fewer.criterion} that the chosen inputs keep, by how many they are"
    return frame(476, 246, "".join(parts), kind="chart", label=label)


def _mark(body: str) -> str:
    return f'<svg viewBox="0 0 26 12" aria-hidden="true">{body}</svg>'


# What marks of charts mean, drawn beside the words.
KEY = {
    "suite": _mark('<polyline class="s" points="0,6 26,6"/>'),
    "forecast": _mark('<polyline class="x" points="0,6 26,6"/>'),
    "reference": _mark('<polyline class="r" points="0,6 26,6"/>'),
    "mistakes": _mark('<polyline class="m" points="0,6 26,6"/>'),
    "training point": _mark('<path class="pt ref" d="M6 6h0m7 0h0m7 0h0"/>'),
    "suite point": _mark('<path class="pt suite" d="M6 6h0m7 0h0m7 0h0"/>'),
    "letter": _mark('<circle class="ring" cx="9" cy="6" r="4.5"/><text class="let" x="16" y="10.5">A</text>'),
    "mistake point": _mark('<path class="tri" d="M13 1l5 9h-10z"/>'),
}
