"""Small charts as SVG text: a sparkline, growth with its forecast, a map of points, bars.

Charts carry classes and no style, so that one style sheet colours them in light, dark and print, and a page may forbid
inline styles. All text in them is escaped. Every chart but the decorative ones has a label for those who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

from neuralcov.report.text import show_share, show_value
from neuralcov.results.sections import FewerInputs, GrowthCurve, Reference, SuiteMap

Points = Sequence[tuple[float, float]]
Scale = Callable[[float], float]
# So many bars tell the shape of a sorted strip.
_STRIP = 24
_MAP = (640.0, 420.0)
_NAMED_CLASSES = 20
_TICKS = 4
# Where the horizontal axis of a chart lies.
_FLOOR = 214.0
LETTERS = "ABCDEFGHIJKL"
"""What the most surprising inputs are called on the map and below their pictures."""


def _short(number: float) -> str:
    """Format a coordinate with one decimal, or none.

    >>> _short(3.0), _short(2.26), _short(-0.04)
    ('3', '2.3', '0')
    """
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _line(points: Points, kind: str) -> str:
    joined = " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
    return f'<polyline class="{kind}" points="{joined}"/>' if len(points) > 1 else ""


def _text(x: float, y: float, text: str, kind: str = "t", anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{_short(x)}" y="{_short(y)}"{where}>{escape(text)}</text>'


def _frame(width: float, height: float, body: str, *, kind: str, label: str | None) -> str:
    told = 'aria-hidden="true"' if label is None else f'role="img" aria-label="{escape(label)}"'
    return f'<svg class="{kind}" viewBox="0 0 {_short(width)} {_short(height)}" {told}>{body}</svg>'


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    """Return what takes low … high to start … end; all goes to the middle if there is no width."""
    width = high - low
    return lambda value: start + (end - start) * ((value - low) / width if width else 0.5)


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


def _finite(points: Points) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def sparkline(curve: GrowthCurve, reference: Reference | None = None) -> str:
    """Draw how a value grew, without axes; the reference dashed. The card that holds it says the same in words."""
    own = _finite([(0.0, 0.0), *zip(map(float, curve.sizes), curve.values, strict=True)])
    other = [] if reference is None else _finite(list(zip(map(float, reference.sizes), reference.values, strict=True)))
    most = max(x for x, _ in own)
    # What the reference has beyond the suite's size is of no use beside it.
    other = [(x, y) for x, y in other if x <= most]
    high = max(y for _, y in own + other)
    low = min(y for _, y in own + other)
    across, up = _scale(0, most, 2, 238), _scale(low, high, 52, 6)
    end = own[-1]
    body = (
        '<path class="g" d="M120 6V52M0 52H240"/>'
        + _line([(across(x), up(y)) for x, y in other], "r")
        + _line([(across(x), up(y)) for x, y in own], "s")
        + f'<circle class="sf" cx="{_short(across(end[0]))}" cy="{_short(up(end[1]))}" r="3"/>'
    )
    return _frame(244, 56, body, kind="spark", label=None)


def growth_chart(name: str, curve: GrowthCurve, reference: Reference | None = None) -> str:
    """Draw a criterion's value against the number of inputs: measured, forecast dotted, reference dashed."""
    own = _finite([(0.0, 0.0), *zip(map(float, curve.sizes), curve.values, strict=True)])
    ahead = _finite([(float(size), value) for size, value, _ in curve.forecast])
    other = [] if reference is None else _finite(list(zip(map(float, reference.sizes), reference.values, strict=True)))
    most = max(x for x, _ in own + ahead)
    other = [(x, y) for x, y in other if x <= most]
    spread = [y + (error or 0.0) for _, y, error in curve.forecast if math.isfinite(y + (error or 0.0))]
    high = max([y for _, y in own + ahead + other] + spread)
    low = min(0.0, *(y for _, y in own + ahead + other))
    across, up = _scale(0, most, 44, 462), _scale(low, high, 214, 12)
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
            at = _short(across(size))
            parts.append(f'<path class="e" d="M{at} {_short(up(value - error))}V{_short(up(value + error))}"/>')
    x, y = own[-1]
    parts.append(f'<circle class="sf" cx="{_short(across(x))}" cy="{_short(up(y))}" r="3.5"/>')
    label = f"{name} against the number of inputs: {show_value(y)} at {x:,.0f}"
    label += "".join(f", {show_value(value)} foreseen at {size:,.0f}" for size, value in ahead[-1:])
    return _frame(476, 246, "".join(parts), kind="chart", label=label)


def count_chart(name: str, points: Points) -> str:
    """Draw a count against the seconds, as steps: between two readings it stays what it was."""
    own = _finite(points)
    most, high = max((x for x, _ in own), default=1.0), max((y for _, y in own), default=0.0)
    across, up = _scale(0, most or 1.0, 44, 462), _scale(min(0.0, *(y for _, y in own)), high or 1.0, 214, 12)
    drawn: list[tuple[float, float]] = []
    for x, y in own:
        if drawn:
            drawn.append((across(x), drawn[-1][1]))
        drawn.append((across(x), up(y)))
    label = f"{name} over time: {show_value(own[-1][1])} after {own[-1][0]:,.0f} seconds"
    body = _axes(most or 1.0, high or 1.0, 0.0, across, up, " s") + _line(drawn, "s")
    return _frame(476, 246, body, kind="chart", label=label)


def _axes(most: float, high: float, low: float, across: Scale, up: Scale, unit: str = " inputs") -> str:
    right = _short(across(most))
    parts = []
    for tick in ticks(high):
        parts.append(f'<path class="g" d="M44 {_short(up(tick))}H{right}"/>')
        parts.append(_text(38, up(tick) + 4, f"{tick:,g}", anchor="end"))
    parts.append(f'<path class="axis" d="M44 {_short(up(low))}H{right}"/>')
    for tick in ticks(most):
        anchor = "end" if across(tick) > across(most) - 16 else "start" if tick == 0 else "middle"
        told = f"{tick:,.0f}{unit}" if tick == ticks(most)[-1] else f"{tick:,.0f}"
        parts.append(_text(across(tick), up(low) + 17, told, anchor=anchor))
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
    joined = " ".join(f"{_short(x)},{_short(y)}" for x, y in above + below[::-1])
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
    return _frame(200, 42, body, kind="strip", label=label)


def bar(share: float) -> str:
    """Draw one share as a bar; the number stands beside it. Its length is a class: a page has hundreds of them."""
    width = 0 if math.isnan(share) else round(100 * min(1.0, max(0.0, share)))
    return f'<i class="bar b{width}"></i>'


def bar_styles() -> str:
    """Return the lengths of bars as style rules."""
    return "".join(f".b{width}:after{{width:{width}%}}" for width in range(1, 101))


def apart(errors: float, label: str) -> str:
    """Draw by how many standard errors two figures are apart, on a scale of ±5, with a band of two to either side."""
    across = _scale(-5, 5, 4, 116)
    at = across(max(-5.0, min(5.0, errors)))
    far = "tri" if abs(errors) > 2 else "sf"
    body = (
        f'<path class="soft" d="M{_short(across(-2))} 1H{_short(across(2))}V13H{_short(across(-2))}z"/>'
        f'<path class="axis" d="M4 7H116M60 2V12"/><circle class="{far}" cx="{_short(at)}" cy="7" r="4"/>'
    )
    return _frame(120, 14, body, kind="apart", label=label)


def scatter(points: SuiteMap) -> str:
    """Draw training data and suite in two directions; mistakes as triangles, classes named at their middle."""
    everything = _finite([*points.training, *points.suite])
    if not everything:
        return ""
    (left, right), (low, high) = map_window(points)
    across, up = _within(left, right, 10, _MAP[0] - 10), _within(low, high, _MAP[1] - 24, 10)
    wrong = points.wrong or (False,) * len(points.suite)
    right_ones = [point for point, miss in zip(points.suite, wrong, strict=True) if not miss]
    misses = _finite([point for point, miss in zip(points.suite, wrong, strict=True) if miss])
    triangles = "".join(f"M{round(across(x))} {round(up(y)) - 5}l5 9h-10z" for x, y in misses)
    body = (
        f'<path class="pt ref" d="{_dots(_finite(points.training), across, up)}"/>'
        f'<path class="pt suite" d="{_dots(_finite(right_ones), across, up)}"/>'
        + (f'<path class="tri" d="{triangles}"/>' if triangles else "")
        + _class_names(points, across, up)
        + _letters(points, across, up)
        + _text(
            _MAP[0] - 10,
            _MAP[1] - 4,
            f"first direction, {show_share(points.explained[0])} of the variance →",
            "t",
            "end",
        )
    )
    label = (
        f"{len(points.training):,} training inputs and {len(points.suite):,} of the suite "
        f"in the two main directions of layer {points.layer}"
    )
    return _frame(*_MAP, body, kind="map", label=label)


def map_window(points: SuiteMap) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return what a map shows of both axes: all but points far beyond nearly all others, which stand at its edge.

    >>> map_window(SuiteMap("fc", (0.5, 0.2), tuple((float(i), 0.5 * i) for i in range(101)), ((9000.0, 20.0),)))[0]
    (0.0, 199.0)
    """
    everything = _finite([*points.training, *points.suite])
    found = []
    for axis in ([x for x, _ in everything], [y for _, y in everything]):
        ordered = sorted(axis)
        low, high = ordered[len(ordered) // 100], ordered[-1 - len(ordered) // 100]
        reach = high - low
        found.append((max(ordered[0], low - reach), min(ordered[-1], high + reach)))
    return found[0], found[1]


def outside(points: SuiteMap) -> int:
    """Count the points that stand at the edge of a map."""
    (left, right), (low, high) = map_window(points)
    both = _finite([*points.training, *points.suite])
    return sum(not (left <= x <= right and low <= y <= high) for x, y in both)


def _within(low: float, high: float, start: float, end: float) -> Scale:
    """Return the same as ``_scale``, with what lies beyond put at the edge."""
    scale = _scale(low, high, start, end)
    return lambda value: scale(min(high, max(low, value)))


def _dots(points: Points, across: Scale, up: Scale) -> str:
    """Return one path of dots. Neighbours in the file are neighbours on the page, which keeps the numbers short."""
    placed = sorted({(round(across(x)), round(up(y))) for x, y in points})
    drawn, last = [], (0, 0)
    for x, y in placed:
        down = y - last[1]
        drawn.append(f"m{x - last[0]}{down if down < 0 else f' {down}'}h0")
        last = (x, y)
    return "".join(drawn)


def _class_names(points: SuiteMap, across: Scale, up: Scale) -> str:
    names = sorted(set(points.classes))
    if not names or len(names) > _NAMED_CLASSES:
        return ""
    drawn = []
    for name in names:
        pairs = zip(points.suite, points.classes, strict=True)
        own = _finite([point for point, its in pairs if its == name])
        if own:
            x, y = (sum(axis) / len(own) for axis in zip(*own, strict=True))
            drawn.append(_text(across(x), up(y) + 7, name[:12], "big", "middle"))
    return "".join(drawn)


def _letters(points: SuiteMap, across: Scale, up: Scale) -> str:
    """Draw a letter beside each of the inputs that are shown as pictures too."""
    drawn = []
    for letter, (_, x, y) in zip(LETTERS, points.named, strict=False):
        if math.isfinite(x) and math.isfinite(y):
            drawn.append(f'<circle class="ring" cx="{_short(across(x))}" cy="{_short(up(y))}" r="4.5"/>')
            drawn.append(_text(across(x) + 7, up(y) + 4.5, letter, "let"))
    return "".join(drawn)


def kept_chart(fewer: FewerInputs) -> str:
    """Draw which share of a value so many inputs keep, and which share of the mistakes where that is known."""
    most = float(max(fewer.sizes))
    across, up = _scale(0, most, 44, 462), _scale(0, 1, 214, 12)
    own = _finite([(0.0, 0.0), *zip(map(float, fewer.sizes), fewer.shares, strict=True)])
    parts = [_axes(most, 1.0, 0.0, across, up)]
    if fewer.mistakes is not None:
        lost = _finite([(0.0, 0.0), *zip(map(float, fewer.sizes), fewer.mistakes, strict=True)])
        parts.append(_line([(across(x), up(y)) for x, y in lost], "m"))
    parts.append(_line([(across(x), up(y)) for x, y in own], "s"))
    label = f"share of {fewer.criterion} that the chosen inputs keep, by how many they are"
    return _frame(476, 246, "".join(parts), kind="chart", label=label)


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
