import json
from dataclasses import replace

import pytest

from neuralcov.results import Results
from neuralcov.results.sections import Gallery, GalleryItem, GrowthCurve


@pytest.mark.parametrize(
    ("sizes", "values", "expected"),
    [
        ((25, 50, 100), (1.0, 3.0, 4.0), 0.25),  # half of the suite is one of the sizes
        ((20, 40, 80, 100), (1.0, 2.0, 4.0, 5.0), 0.5),  # between two sizes: a straight line
        ((50, 100), (3.0, 4.0), 0.25),
        ((10, 100), (5.0, 4.0), 1 - (5 - 40 / 90) / 4),  # a value may fall
    ],
)
def test_what_the_second_half_added(sizes, values, expected):
    assert GrowthCurve(sizes, values).second_half == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sizes", "values"),
    [((), ()), ((100,), (4.0,)), ((80, 100), (3.0, 4.0)), ((50, 100), (0.0, 0.0))],
    ids=["empty", "one size", "nothing below half", "nothing covered"],
)
def test_the_second_half_is_unknown(sizes, values):
    assert GrowthCurve(sizes, values).second_half is None


def test_sections_become_json():
    bare = Results("model", "suite", 2, {"NC(0.75)": 0.5}, {}, (), (), {})
    items = (GalleryItem("a.png", "adds most", picture=b"\x89PNG"),)
    full = replace(
        bare,
        growth={"NC(0.75)": GrowthCurve((1, 2), (0.25, 0.5), forecast=((4, float("nan"), None),))},
        galleries=(Gallery("Adding most", "Read from the left.", items),),
    )
    content = json.loads(json.dumps(full.to_json(), allow_nan=False))
    assert content["galleries"][0]["items"][0]["picture"] == "iVBORw=="
    assert content["growth"]["NC(0.75)"]["forecast"] == [[4, None, None]]
    assert (bare.to_json()["growth"], bare.to_json()["galleries"]) == ({}, [])
