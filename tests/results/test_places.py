"""Gates of layers, classes and slices, as plain data."""

from dataclasses import replace

import pytest

from neuralcov.core.errors import InputError
from neuralcov.core.findings import LayerRow
from neuralcov.report.text import gate_lines
from neuralcov.results.places import Place, PlacedGate, figures_at
from neuralcov.results.policy import Policy, Waiver
from neuralcov.results.slices import SliceRow, SliceTable
from tests.results.test_compare import measured
from tests.results.test_gate import TOMORROW, YESTERDAY, judged

LAYERS = (
    LayerRow("conv.0", 8, {"NC(0.75)": 0.5}, {"LCC.relative": 0.9}),
    LayerRow("conv.1", 8, {"NC(0.75)": 0.2}, {"LCC.relative": None}),
    LayerRow("lstm[0]", 4, {"NC(0.75)": 0.9}, {"LCC.relative": 1.1}),
)
SLICES = (
    SliceTable(
        "class", (SliceRow("0", 30, {"LCC": 0.2}, {"LCC": 0.1}, 30, 27), SliceRow("10", 5, {"LCC": 0.1}, {"LCC": None}))
    ),
    SliceTable("weather", (SliceRow("rain", 12, {"LCC": 0.3}, {"LCC": 0.05}),)),
)


def told(never_seen=(7,)):
    result = measured(layers=LAYERS, slices=SLICES)
    return replace(result, sanity=replace(result.sanity, never_seen=never_seen))


def gate(figure, kind, name, least=None, most=None):
    return PlacedGate(figure, Place(kind, name), least, most)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (gate("NC(0.75)", "layer", "conv.0"), {"layer conv.0": 0.5}),
        (gate("NC(0.75)", "layer", "conv*"), {"layer conv.0": 0.5, "layer conv.1": 0.2}),
        # Brackets in a name are no glob.
        (gate("LCC.relative", "layer", "lstm[0]"), {"layer lstm[0]": 1.1}),
        (gate("NC(0.75)", "layer", "*|!conv*"), {"layer lstm[0]": 0.9}),
        (gate("LCC", "class", "10"), {"class 10": 0.1}),
        (gate("LCC", "class", "*"), {"class 0": 0.2, "class 7": None, "class 10": 0.1}),
        (gate("inputs", "class", "*"), {"class 0": 30, "class 7": 0, "class 10": 5}),
        (gate("LCC", "class", "4"), {"class 4": None}),
        (gate("LCC.lost", "slice", "weather=rain"), {"slice weather=rain": 0.05}),
        (gate("LCC.lost", "slice", "weather=*"), {"slice weather=rain": 0.05}),
        (gate("inputs", "slice", "weather=fog"), {"slice weather=fog": 0}),
        (gate("accuracy", "class", "*"), {"class 0": 0.9, "class 7": None, "class 10": None}),
    ],
)
def test_where_figures_are(asked, found):
    assert {str(place): value for place, value in figures_at(told(), asked).items()} == found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (gate("NC(0.75)", "layer", "fc"), "there is no such layer; there are conv.0, conv.1"),
        (
            gate("NC(0.5)", "layer", "conv.0"),
            r"'NC\(0.5\)' is no figure of a layer: there are NC\(0.75\), LCC.relative",
        ),
        (gate("LCC.relative", "class", "1"), "no figure of a class: there are inputs, accuracy, LCC, LCC.lost"),
        (gate("LCC", "slice", "time=night"), "slices by time were not measured .there are class, weather.; measure"),
        (gate("LCC", "slice", "rain"), "expected column=value"),
    ],
)
def test_what_is_not_there(asked, said):
    with pytest.raises(InputError, match=said):
        figures_at(told(), asked)


@pytest.mark.parametrize(
    ("asked", "met"),
    [
        (gate("NC(0.75)", "layer", "conv*", 0.2), True),
        (gate("NC(0.75)", "layer", "conv*", 0.3), False),
        (gate("NC(0.75)", "layer", "*", 0.2, 0.9), True),
        (gate("NC(0.75)", "layer", "*", 0.2, 0.8), False),
        # A layer without the figure is passed over among several, and fails where it is asked for by name.
        (gate("LCC.relative", "layer", "conv*", 0.9), True),
        (gate("LCC.relative", "layer", "conv.1", 0.1), False),
        (gate("LCC.relative", "layer", "conv.1*", 0.1), False),
        # A class that never occurs.
        (gate("LCC", "class", "*", 0.1), False),
        (gate("LCC", "class", "0", 0.1), True),
        (gate("LCC", "slice", "weather=rain", 0.3), True),
        (gate("LCC", "slice", "weather=fog", 0.0), False),
        (gate("LCC", "slice", "weather=fo*", 0.0), False),
    ],
)
def test_in_both_directions(asked, met):
    found = judged(Policy(placed=(asked,)), told())
    assert found.met is met
    assert gate_lines(found)[-1].startswith("gate met" if met else "gate NOT met")


def test_words():
    found = judged(Policy(placed=(gate("NC(0.75)", "layer", "conv*", 0.3),)), told())
    assert [(check.name, check.met) for check in found.checks] == [
        ("NC(0.75) [layer conv.0]", True),
        ("NC(0.75) [layer conv.1]", False),
    ]
    assert gate_lines(found)[1] == "NOT MET: NC(0.75) of layer conv.1 is 0.2, asked for ≥ 0.3"
    passed_over = judged(Policy(placed=(gate("LCC.relative", "layer", "*", 0.5),)), told())
    assert passed_over.notes == ("LCC.relative of layer conv.1 is not known and not judged",)


@pytest.mark.parametrize(
    ("waiver", "met"),
    [
        ({"gate": None, "place": Place("layer", "conv.1")}, True),
        ({"gate": None, "place": Place("layer", "conv*")}, True),
        ({"gate": "NC(0.75)", "place": Place("layer", "conv.1")}, True),
        ({"gate": None, "place": Place("layer", "conv.0")}, False),
        ({"gate": "LCC", "place": Place("layer", "conv.1")}, False),
        # That of the whole suite.
        ({"gate": "NC(0.75)"}, False),
        ({"gate": None, "place": Place("class", "conv.1")}, False),
    ],
)
def test_waivers_by_place(waiver, met):
    held = Waiver(reason="new", owner="Kim", expires=TOMORROW, **waiver)
    policy = Policy(placed=(gate("NC(0.75)", "layer", "conv*", 0.3),), waivers=(held,))
    found = judged(policy, told())
    assert found.met is met
    shown = " ".join(gate_lines(found))
    assert ("waived by Kim" in shown) is met
    # A waiver is shown, needed or not.
    assert "Kim until 2026-11-17" in shown
    expired = judged(replace(policy, waivers=(replace(held, expires=YESTERDAY),)), told())
    assert not expired.met
    assert f"the waiver of {held.subject} by Kim expired" in " ".join(gate_lines(expired))


def test_a_class_that_need_not_occur_need_not_meet_its_gates():
    waiver = Waiver(None, "not sold yet", "Kim", TOMORROW, never_seen=7)
    policy = Policy(placed=(gate("LCC", "class", "*", 0.1),), waivers=(waiver,))
    assert judged(policy, told()).met
    assert waiver.subject == "[class 7]"
    assert not judged(policy, told(never_seen=(7, 8))).met
