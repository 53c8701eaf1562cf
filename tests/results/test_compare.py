"""Two measurements side by side, as plain data."""

import json
from dataclasses import replace

import pytest

from neuralcov.core.errors import InputError, MismatchError
from neuralcov.core.findings import LayerRow
from neuralcov.report.text import comparison_table
from neuralcov.results import Results
from neuralcov.results.compare import Side, compare
from neuralcov.results.figures import find_figure
from neuralcov.results.sanity import Alarm, Sanity

LAYERS = (LayerRow("conv", 8, {}), LayerRow("fc", 4, {}))


def measured(suite="a.ncov", inputs=400, relative=1.0, error=0.04, value=0.5, **more):
    details = {"LCC": {"relative": relative, "relative_error": error, "error": 0.02, "off_map": 0.05, "next": 0.2}}
    told = {
        "model": "net",
        "suite": suite,
        "inputs": inputs,
        "values": {"LCC": value, "NC(0.75)": 0.8},
        "details": details,
        "layers": LAYERS,
        "findings": (),
        "calibration": {"LCC": "c1", "NC(0.75)": None},
        "definitions": {"LCC": 1, "NC(0.75)": 1},
        "model_id": "m1",
        "sanity": Sanity(inputs, judged=inputs, accuracy=0.95, classes=10, duplicates=0, near_duplicates=3),
    }
    return Results(**{**told, **more})


def verdicts(a, b, **rarefied):
    found = compare(Side(a, rarefied.get("first", {})), Side(b, rarefied.get("second", {})))
    return {row.name: row.verdict for row in found.rows}, found


def test_nobody_wins_within_two_errors():
    # Noisy copies at 1.03 against a test set at 1.02: no difference that could be told.
    found, _ = verdicts(measured(relative=1.02), measured("b.ncov", relative=1.03))
    assert found["LCC.relative"] == "="
    found, whole = verdicts(measured(relative=1.14), measured("b.ncov", relative=1.02))
    assert found["LCC.relative"] == ">"
    row = next(row for row in whole.rows if row.name == "LCC.relative")
    assert row.error == pytest.approx(0.04 * 2**0.5)
    assert row.difference == pytest.approx(-0.12)
    assert found == {
        "accuracy": "=", "inputs": "=", "classes": "=", "duplicates": "=", "near_duplicates": "=", "LCC": "=",
        "LCC.relative": ">", "LCC.off_map": "=", "LCC.next": "=", "NC(0.75)": "=",
    }  # fmt: skip
    # Where no error is known nobody wins either.
    other = measured("b.ncov", values={"LCC": 0.5, "NC(0.75)": 0.2})
    assert verdicts(measured(), other)[0]["NC(0.75)"] == "?"


def test_other_sizes_are_compared_at_the_smaller_one():
    large, small = measured(inputs=1600, value=0.9), measured("b.ncov", inputs=400, value=0.5)
    found, whole = verdicts(large, small)
    assert (found["LCC"], found["NC(0.75)"], found["LCC.next"], found["LCC.relative"]) == ("?", "?", "?", "=")
    assert whole.notes == (
        "1,600 against 400 inputs: values that depend on size are compared at 400, drawn at random, where kinds are "
        "counted, and not judged elsewhere",
    )
    found, whole = verdicts(large, small, first={"LCC": 0.52})
    row = next(row for row in whole.rows if row.name == "LCC")
    assert (row.first, row.second, row.verdict, row.why) == (0.52, 0.5, "=", "at 400 inputs")
    # A quarter of the inputs scatters twice as much.
    assert row.error == pytest.approx(0.02 * 5**0.5)
    assert verdicts(small, large, second={"LCC": 0.62})[0]["LCC"] == "<"


def test_another_model_is_judged_by_relative_figures_only():
    found, whole = verdicts(measured(), measured("b.ncov", model_id="m2", calibration={"LCC": "c2", "NC(0.75)": None}))
    assert whole.notes[0] == (
        "another model and calibration: only figures that are relative to their own calibration are judged"
    )
    assert (found["LCC"], found["NC(0.75)"], found["LCC.relative"], found["accuracy"]) == ("?", "?", "=", "=")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"values": {"LCC": 0.5, "NC(0.5)": 0.1}}, r"criteria differ: a.ncov has NC\(0.75\), b.ncov has NC\(0.5\)"),
        ({"values": {"TKNP(3)": 7.0}, "details": {}}, "no criterion in common: a.ncov has LCC"),
        ({"definitions": {"LCC": 2, "NC(0.75)": 1}}, "LCC: a.ncov was measured under definition 1, b.ncov under 2"),
        ({"layers": LAYERS[:1]}, "layers differ: 'fc' has 4 neurons in a.ncov, none in b.ncov"),
    ],
)
def test_what_cannot_be_compared_is_refused(other, said):
    with pytest.raises(MismatchError, match=said):
        compare(Side(measured()), Side(measured("b.ncov", **other)))


def test_criteria_of_one_alone_and_alarms_are_told():
    more = measured("b.ncov", values={"LCC": 0.5, "NC(0.75)": 0.8, "SNAC": 0.1})
    more = replace(more, sanity=replace(more.sanity, alarms=(Alarm("unlike", "97 % of these inputs are"),)))
    found, whole = verdicts(measured(), more)
    assert "SNAC" not in found
    assert whole.notes == ("in one of them only: SNAC", "b.ncov: ALARM unlike: 97 % of these inputs are")


def test_figures_by_name():
    result = measured()
    assert find_figure(result, "LCC.relative").value == 1.0
    assert find_figure(result, "NC(0.75)").value == 0.8
    assert find_figure(result, "accuracy").error == pytest.approx((0.95 * 0.05 / 400) ** 0.5)
    with pytest.raises(InputError, match=r"'NC.relative' is no figure of a.ncov: it has accuracy, .*LCC.relative"):
        find_figure(result, "NC.relative")


def test_golden_json_and_table():
    whole = verdicts(measured(), measured("b.ncov"))[1]
    written = json.loads(json.dumps(whole.to_json()))
    assert written["rows"][0] == {
        "name": "accuracy", "first": 0.95, "second": 0.95, "error": pytest.approx(0.01541, abs=1e-5), "verdict": "=",
        "why": "",
    }  # fmt: skip
    assert {key: value for key, value in written.items() if key != "rows"} == {
        "schema": 1, "first": "a.ncov", "second": "b.ncov", "inputs": [400, 400], "notes": [],
    }  # fmt: skip
    assert comparison_table(whole).row_count == len(whole.rows)
