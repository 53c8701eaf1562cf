"""A value beside its reference: as varied, more, less, or not judged."""

import math
from dataclasses import replace

import pytest

from neuralcov.report.text import reference_in_words, summary
from neuralcov.results.references import ReferenceCurve, against_reference

CURVE = ReferenceCurve((1, 2, 4, 8, 10), (0.0, 0.2, 0.4, 0.6, 0.65), definition=1)


@pytest.mark.parametrize(
    ("inputs", "value", "size"),
    [
        (1, 0.0, 1),
        (8, 0.6, 8),
        (3, 0.2 + 0.2 * math.log2(1.5), 3),
        (9, 0.6 + 0.05 * math.log(9 / 8) / math.log(10 / 8), 9),
        (10, 0.65, 10),
        (11, 0.65, 10),
        (0, 0.0, 1),
    ],
)
def test_interpolated_in_the_logarithm_and_not_beyond(inputs, value, size):
    found = CURVE.at(inputs)
    assert found.value == pytest.approx(value)
    assert found.inputs == size
    assert ReferenceCurve.from_json(CURVE.to_json()) == CURVE


@pytest.mark.parametrize(
    ("value", "error", "inputs", "said"),
    [
        # Two errors of a difference of two: 2·√2·0.02 = 0.0566.
        (0.65, 0.02, 10, "as varied as training data (0.65 for 10 held-out training inputs, ± 0.057)"),
        (0.706, 0.02, 10, "as varied as training data (0.65 for 10 held-out training inputs, ± 0.057)"),
        (0.707, 0.02, 10, "more than training data shows (0.65 for 10 held-out training inputs, ± 0.057)"),
        (0.593, 0.02, 10, "less than training data shows (0.65 for 10 held-out training inputs, ± 0.057)"),
        (0.9, None, 10, "0.65 for 10 held-out training inputs; no error is known: not judged"),
        (0.9, math.nan, 10, "0.65 for 10 held-out training inputs; no error is known: not judged"),
        (0.9, 0.02, 11, "0.65 for 10 held-out training inputs, fewer than these: not judged"),
    ],
)
def test_what_that_makes_a_value(value, error, inputs, said):
    found = against_reference(value, error, inputs, CURVE.at(inputs), lambda number: f"{number:.2g}")
    told = found.told if found.verdict is None else f"{found.verdict} ({found.told})"
    assert told == said
    shown = reference_in_words(value, {} if error is None else {"error": error}, inputs, CURVE.at(inputs))
    assert shown.startswith(said.partition("(")[0].partition(" for")[0])


def test_a_larger_suite_is_judged_at_the_references_size_where_that_is_known():
    # Ten of 40 inputs scatter twice as much as all: 2·√2·2·0.02 = 0.113.
    for beside, said in ((0.70, "as varied"), (0.77, "more than"), (0.53, "less than")):
        found = against_reference(0.9, 0.02, 40, replace(CURVE.at(40), beside=beside), lambda number: f"{number:.2g}")
        assert found.verdict.startswith(said)
        assert found.told.startswith(f"0.65 for 10 held-out training inputs, where as many of these show {beside:.2g}")


def test_it_stands_beside_the_value():
    text = summary("10 inputs", {"NC(0.75)": 0.5, "LCC": 0.2}, {"LCC": {"relative": 1.0}}, {"NC(0.75)": "as varied"})
    assert text.splitlines()[1:] == [
        "  NC(0.75)  0.5000  as varied",
        "  LCC       0.2000  1.00 × as varied as training data",
    ]
