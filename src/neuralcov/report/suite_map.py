"""The map of training data and suite in two directions, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from neuralcov.core.counted import counted
from neuralcov.report.drawing import Points, Scale, finite, frame, scale_to, short, text_at
from neuralcov.report.text import show_share
from neuralcov.results.sections import SuiteMap

_MAP = (640.0, 420.0)
_NAMED_CLASSES = 20
LETTERS = "ABCDEFGHIJKL"
"""What the most surprising inputs are called on the map and below their pictures."""
# A letter stands beside its ring where it has most room: to the right if it can, as (x, y) from the ring to its middle.
_BESIDE = ((12.0, 0.0), (-12.0, 0.0), (0.0, -12.0), (0.0, 12.0), (10.0, -9.0), (10.0, 9.0), (-10.0, -9.0), (-10.0, 9.0))
_LETTER, _CLASS = 12.0, 18.0
# So far a class may be named from its middle.
_NEAR = ((0.0, -18.0), (0.0, 18.0), (-14.0, 0.0), (14.0, 0.0))


def scatter(points: SuiteMap) -> str:
    """Draw training data and suite in two directions; mistakes as triangles, classes named at their middle."""
    everything = finite([*points.training, *points.suite])
    if not everything:
        return ""
    (left, right), (low, high) = map_window(points)
    across, up = _within(left, right, 10, _MAP[0] - 10), _within(low, high, _MAP[1] - 24, 10)
    classes = _class_places(points, across, up)
    wrong = points.wrong or (False,) * len(points.suite)
    right_ones = [point for point, miss in zip(points.suite, wrong, strict=True) if not miss]
    misses = finite([point for point, miss in zip(points.suite, wrong, strict=True) if miss])
    triangles = "".join(f"M{round(across(x))} {round(up(y)) - 5}l5 9h-10z" for x, y in misses)
    body = (
        f'<path class="pt ref" d="{_dots(finite(points.training), across, up)}"/>'
        f'<path class="pt suite" d="{_dots(finite(right_ones), across, up)}"/>'
        + (f'<path class="tri" d="{triangles}"/>' if triangles else "")
        + "".join(text_at(x, y + 7, name[:12], "big", "middle") for name, (x, y) in classes.items())
        + "".join(_letters(points, classes.values(), across, up))
        + text_at(
            _MAP[0] - 10,
            _MAP[1] - 4,
            f"first direction, {show_share(points.explained[0])} of the variance →",
            "t",
            "end",
        )
    )
    label = (
        f"{counted(len(points.training), 'training input')} and {len(points.suite):,} of the suite "
        f"in the two main directions of layer {points.layer}"
    )
    return frame(*_MAP, body, kind="map", label=label)


def map_window(points: SuiteMap) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return what a map shows of both axes: all but points far beyond nearly all others, which stand at its edge.

    >>> map_window(SuiteMap("fc", (0.5, 0.2), tuple((float(i), 0.5 * i) for i in range(101)), ((9000.0, 20.0),)))[0]
    (0.0, 199.0)
    """
    everything = finite([*points.training, *points.suite])
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
    both = finite([*points.training, *points.suite])
    return sum(not (left <= x <= right and low <= y <= high) for x, y in both)


def _within(low: float, high: float, start: float, end: float) -> Scale:
    """Return the same as ``scale_to``, with what lies beyond put at the edge."""
    scale = scale_to(low, high, start, end)
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


def _class_places(points: SuiteMap, across: Scale, up: Scale) -> dict[str, tuple[float, float]]:
    """Return the middle of every class on the page, or a place near it; nothing if there are too many to name."""
    names = sorted(set(points.classes))
    found: dict[str, tuple[float, float]] = {}
    for name in names if len(names) <= _NAMED_CLASSES else ():
        pairs = zip(points.suite, points.classes, strict=True)
        own = finite([point for point, its in pairs if its == name])
        if own:
            x, y = (sum(axis) / len(own) for axis in zip(*own, strict=True))
            middle = across(x), up(y)
            taken = [(*place, _CLASS) for place in found.values()]
            places = [middle, *((middle[0] + right, middle[1] + down) for right, down in _NEAR)]
            found[name] = min(places, key=lambda place: _crowded(place, taken))
    return found


def _letters(points: SuiteMap, classes: Iterable[tuple[float, float]], across: Scale, up: Scale) -> Iterator[str]:
    """Draw a letter beside each of the inputs that are shown as pictures too, where it hides no other."""
    named = zip(LETTERS, points.named, strict=False)
    rings = [(letter, across(x), up(y)) for letter, (_, x, y) in named if math.isfinite(x) and math.isfinite(y)]
    # What stands somewhere already, and how much room it takes.
    taken = [(x, y, _CLASS) for x, y in classes] + [(x, y, _LETTER) for _, x, y in rings]
    for letter, x, y in rings:
        yield f'<circle class="ring" cx="{short(x)}" cy="{short(y)}" r="4.5"/>'
        at = min(((x + right, y + down) for right, down in _BESIDE), key=lambda place: _crowded(place, taken))
        taken.append((*at, _LETTER))
        yield text_at(at[0], at[1] + 4.5, letter, "let", "middle")


def _crowded(place: tuple[float, float], taken: Iterable[tuple[float, float, float]]) -> float:
    """Return how far a letter would reach into what stands there already; beyond the map there is no room at all."""
    x, y = place
    if not (_LETTER / 2 <= x <= _MAP[0] - _LETTER / 2 and _LETTER / 2 <= y <= _MAP[1] - _LETTER / 2):
        return math.inf
    return sum(max(0.0, room - math.hypot(x - other, y - height)) for other, height, room in taken)
