"""Charts: round ticks for any size, steps of counts, points far out at the edge, text escaped."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.report import suite_map, svg
from neuralcov.results.sections import FewerInputs, GrowthCurve, Reference, SuiteMap


@given(st.floats(1e-300, 1e300))
def test_there_are_a_few_round_ticks_up_to_any_number(high):
    found = svg.ticks(high)
    assert found[0] == 0
    assert 2 <= len(found) <= 5
    assert found[-1] <= high * (1 + 1e-6)


@pytest.mark.parametrize("high", [0.0, -1.0, math.nan, math.inf])
def test_there_is_one_tick_where_there_is_no_height(high):
    assert svg.ticks(high) == [0.0]


def test_names_are_escaped_and_charts_are_well_formed():
    curve = GrowthCurve((1, 2, 4), (1.0, 3.7, 3.9), (0.1, 0.2, math.nan), forecast=((8, 4.0, 0.5), (9, math.nan, None)))
    reference = Reference(1.0, 4, (1, 4), (0.5, 1.0))
    drawn = SuiteMap('<b>"', (0.5, 0.2), ((0.0, 1.0), (2.0, 3.0)), ((1.0, 1.0),), ("<i>&",), (True,))
    for chart in (
        svg.growth_chart('<b>"', curve, reference),
        svg.sparkline(curve, reference),
        suite_map.scatter(drawn),
        svg.kept_chart(FewerInputs('<b>"', (1, 2), (0.5, 1.0), (0.0, 1.0))),
        svg.count_chart('<b>"', [(0.0, 0.0), (1.0, 3.7)]),
        svg.count_chart("never", [(0.0, 0.0), (1.0, 0.0)]),
        svg.strip([0.1, math.nan, 2.0], '<b>"'),
        svg.eigenvalue_bars([0.0, 0.0], '<b>"'),
        svg.bar(0.5),
        svg.bar(math.nan),
    ):
        ElementTree.fromstring(chart)
        assert "<b>" not in chart
        assert "style=" not in chart
        assert "nan" not in chart


def test_columns_stand_side_by_side():
    chart = svg.strip([1.0, 0.25, 0.5], "three")
    path = re.search(r'transform="translate\((-?[\d.]+) 0\)" d="M0 40([^"]*)"', chart)
    x, y, columns = float(path[1]), 40.0, []
    for step, back, height in re.findall(r"m(\d+) (\d+)v-(\d+)", path[2]):
        x, y = x + int(step), y + int(back)
        columns.append((x, y, int(height)))
        y -= int(height)
    assert columns == [(8, 40, 9), (24, 40, 18), (40, 40, 36)]


def test_counts_are_steps():
    chart = svg.count_chart("kept", [(0.0, 0.0), (10.0, 4.0), (20.0, 4.0)])
    points = re.search(r'class="s" points="([^"]*)"', chart)[1].split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) == 5
    assert heights[0] == heights[1]
    assert len(set(heights)) == 2
    assert "4" in re.search(r'aria-label="([^"]*)"', chart)[1]


def test_points_far_out_stand_at_the_edge_and_are_counted():
    near = tuple((float(i % 10), float(i // 10)) for i in range(200))
    drawn = SuiteMap("fc", (0.5, 0.2), near, ((1e6, 5.0), (4.0, 4.0)))
    assert suite_map.outside(drawn) == 1
    assert suite_map.map_window(drawn)[0][1] < 30
    path = re.search(r'class="pt suite" d="([^"]*)"', suite_map.scatter(drawn))[1]
    x = sum(int(step) for step in re.findall(r"m(-?\d+)", path))
    assert x <= 630


def test_letters_on_the_map_stand_clear_of_each_other_and_of_class_names():
    # Rings side by side around the names of two classes, and one at the very edge.
    named = (("a", 0.0, 0.0), ("b", 0.03, 0.01), ("c", 0.5, 0.5), ("d", 0.51, 0.49), ("e", 1.0, 1.0))
    corners = ((0.0, 0.0), (1.0, 1.0))
    drawn = suite_map.scatter(SuiteMap("fc", (0.5, 0.2), corners, ((0.0, 0.0), (0.5, 0.5)), ("3", "8"), (), named))
    letters = re.findall(r'class="let" x="([\d.]+)" y="([\d.]+)" text-anchor="middle">([A-E])<', drawn)
    assert [letter for _, _, letter in letters] == list("ABCDE")
    places = [(float(x), float(y) - 4.5) for x, y, _ in letters]
    assert all(math.dist(one, other) >= 11 for one, other in combinations(places, 2))
    rings = [(float(x), float(y)) for x, y in re.findall(r'class="ring" cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert len(rings) == 5
    assert all(math.dist(place, ring) >= 8 for place in places for ring in rings)
    assert all(0 < x < 640 and 0 < y < 420 for x, y in places)


def test_names_of_classes_on_the_map_do_not_hide_each_other():
    at = ((0.0, 0.0), (1.0, 1.0), (0.5, 0.5), (0.5, 0.51), (0.49, 0.5))
    drawn = suite_map.scatter(SuiteMap("fc", (0.5, 0.2), (), at, ("0", "1", "2", "3", "4")))
    places = [(float(x), float(y)) for x, y in re.findall(r'class="big" x="([\d.]+)" y="([\d.]+)"', drawn)]
    assert len(places) == 5
    assert all(math.dist(one, other) >= 14 for one, other in combinations(places, 2))
