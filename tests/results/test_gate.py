"""Gates in both directions, as plain data."""

import datetime
from dataclasses import replace

import pytest

from neuralcov.core.errors import InputError
from neuralcov.report.text import gate_lines
from neuralcov.results.compare import Side, compare
from neuralcov.results.gate import judge_gate
from neuralcov.results.policy import Basis, Policy, Waiver
from neuralcov.results.sanity import Alarm
from tests.results.test_compare import measured

TODAY = datetime.date(2026, 11, 16)
TOMORROW, YESTERDAY = TODAY + datetime.timedelta(1), TODAY - datetime.timedelta(1)


def judged(policy, result=None, baseline=None):
    result = measured() if result is None else result
    beside = None if baseline is None else compare(Side(baseline), Side(result))
    return judge_gate(result, policy, TODAY, beside)


def alarmed(*names):
    result = measured()
    alarms = tuple(Alarm(name, f"{name} is wrong") for name in names)
    return replace(result, sanity=replace(result.sanity, alarms=alarms, never_seen=(7,)))


@pytest.mark.parametrize(
    ("policy", "met"),
    [
        (Policy(least={"LCC.relative": 1.0}), True),
        (Policy(least={"LCC.relative": 1.0001}), False),
        (Policy(most={"LCC.off_map": 0.05}), True),
        (Policy(most={"LCC.off_map": 0.04}), False),
        (Policy(least={"accuracy": 0.9, "inputs": 400, "NC(0.75)": 0.8}), True),
        (Policy(least={"accuracy": 0.96}), False),
        (Policy(least={"unlike": 0.1}), False),
    ],
)
def test_thresholds(policy, met):
    found = judged(policy)
    assert found.met is met
    assert gate_lines(found)[-1].startswith("gate met" if met else "gate NOT met")


def test_drops():
    small = Policy(drops={"LCC.relative": 0.05})
    assert judged(small, measured(relative=0.96), measured("main.ncov")).met
    # Ten per cent, but within two errors of 0.04·√2.
    within = judged(small, measured(relative=0.9), measured("main.ncov"))
    assert within.met
    assert within.checks[0].sentence == ("LCC.relative fell by 10.0 % (1 to 0.9, within two errors), allowed 5 %")
    below = judged(small, measured(relative=0.8), measured("main.ncov"))
    assert not below.met
    assert below.checks[0].sentence == "LCC.relative fell by 20.0 % (1 to 0.8), allowed 5 %"
    assert judged(small, measured(relative=1.4), measured("main.ncov")).met
    with pytest.raises(InputError, match="needs a baseline"):
        judged(small)
    with pytest.raises(InputError, match="do not both have it"):
        judged(Policy(drops={"SNAC": 0.1}), measured(), measured("main.ncov"))


def test_drops_of_every_criterion():
    every = Policy(drops={"*": 0.05})
    now = measured(values={"LCC": 0.5, "NC(0.75)": 0.7})
    found = judged(every, now, measured("main.ncov"))
    assert [(check.name, check.met) for check in found.checks] == [("LCC.relative", True)]
    assert found.notes == (
        "NC(0.75): the drop below the baseline is not judged: no error is known; ask for it by name",
    )
    named = judged(Policy(drops={"*": 0.05, "NC(0.75)": 0.05}), now, measured("main.ncov"))
    assert {check.name: check.met for check in named.checks} == {"LCC.relative": True, "NC(0.75)": False}
    assert "no error is known" in named.checks[0].sentence
    bare = measured(values={"NC(0.75)": 0.7}, details={})
    with pytest.raises(InputError, match="by its error; name one, such as --max-drop 'NC"):
        judged(every, bare, measured("main.ncov"))
    # On another model raw values are not judged, and that is said.
    other = measured(values={"LCC": 0.5, "NC(0.75)": 0.1}, model_id="m2")
    found = judged(every, other, measured("main.ncov"))
    assert (found.met, [check.name for check in found.checks]) == (True, ["LCC.relative"])
    assert found.notes[0].startswith("another model:")
    assert found.notes[-1] == "NC(0.75): the drop below the baseline is not judged: other model or calibration"
    # What was asked for by name and cannot be judged is not met.
    assert not judged(Policy(drops={"NC(0.75)": 0.05}), other, measured("main.ncov")).met


def test_alarms_stand_in_the_way_whatever_the_values():
    policy = Policy(least={"LCC.relative": 0.5})
    found = judged(policy, alarmed("unlike", "classes"))
    assert (found.met, [check.name for check in found.checks if not check.fine]) == (
        False,
        ["alarm:unlike", "alarm:classes"],
    )
    allowed = replace(policy, allowed={"unlike": "noise on purpose", "classes": "a smoke test"})
    assert judged(allowed, alarmed("unlike", "classes")).met
    assert "WAIVED: alarm:classes: classes is wrong (a smoke test)" in gate_lines(judged(allowed, alarmed("classes")))
    assert not judged(replace(policy, allowed={"classes": "a smoke test"}), alarmed("unlike", "classes")).met


def test_waivers_hold_until_their_day():
    policy = Policy(least={"LCC.relative": 2.0})
    waiver = Waiver("LCC.relative", "new camera", "Kim", TODAY)
    found = judged(replace(policy, waivers=(waiver,)))
    assert found.met
    assert found.checks[0].waived == "waived by Kim until 2026-11-16: new camera"
    assert judged(replace(policy, waivers=(replace(waiver, expires=TOMORROW),))).met
    expired = judged(replace(policy, waivers=(replace(waiver, expires=YESTERDAY),)))
    assert [check.name for check in expired.checks if not check.fine] == ["LCC.relative", "waiver:LCC.relative"]
    # An expired one fails though it is not needed any more.
    easy = Policy(least={"LCC.relative": 0.5}, waivers=(replace(waiver, expires=YESTERDAY),))
    assert not judged(easy).met


def test_a_class_may_be_waived():
    policy = Policy(least={"LCC.relative": 0.5})
    waiver = Waiver(None, "not sold yet", "Kim", TOMORROW, never_seen=7)
    assert judged(replace(policy, waivers=(waiver,)), alarmed("classes")).met
    assert not judged(replace(policy, waivers=(replace(waiver, never_seen=3),)), alarmed("classes")).met


def test_golden_json():
    assert judged(Policy(least={"LCC.relative": 0.9})).to_json() == {
        "schema": 1,
        "met": True,
        "suite": "a.ncov",
        "checks": (
            {
                "name": "LCC.relative",
                "met": True,
                "sentence": "LCC.relative is 1, asked for ≥ 0.9",
                "waived": None,
                "asks": "min",
                "requirement": None,
                "reason": None,
            },
        ),
        "notes": (),
    }


def test_what_a_threshold_rests_on():
    policy = Policy(least={"LCC.relative": 0.9}, bases={("min", "LCC.relative"): Basis("SR-7", "as in training")})
    check = judged(policy).checks[0]
    assert (check.requirement, check.reason) == ("SR-7", "as in training")
    # A number from elsewhere does not rest on what the first rested on.
    check = judged(policy.joined(Policy(least={"LCC.relative": 0.5}))).checks[0]
    assert (check.met, check.requirement, check.reason) == (True, None, None)
    assert judged(policy.joined(Policy(most={"NC(0.75)": 1.0}))).checks[0].requirement == "SR-7"
