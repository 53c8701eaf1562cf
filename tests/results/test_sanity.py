"""Sanity as a pure function of plain data: a golden result, and the edges of each alarm."""

import json
from dataclasses import replace

import pytest

from neuralcov.report import sanity_lines
from neuralcov.results.sanity import SuiteFacts, judge_sanity
from neuralcov.results.scale import ChannelFacts

TRAINING = SuiteFacts(1000, 1000, 990, dict.fromkeys(range(10), 100), labelled=True)


def channels(mean, deviation):
    return ChannelFacts(400, (mean,), ((0.01,),), (deviation**2 + mean**2,), 0.001)


BESIDE = replace(TRAINING, channels=channels(-0.001, 1.0))


def names(facts, **figures):
    return [alarm.name for alarm in judge_sanity(facts, {"LCC": figures} if figures else {}).alarms]


def facts(inputs=500, accuracy=0.95, classes=range(10), training=TRAINING, **more):
    by_class = {c: inputs // len(list(classes)) for c in classes}
    return SuiteFacts(inputs, inputs, round(accuracy * inputs), by_class, labelled=True, training=training, **more)


def test_golden():
    found = judge_sanity(
        facts(400, 0.2, range(5), duplicates=0.25, alike=0.3, channels=channels(0.473, 0.25), training=BESIDE),
        {
            "SNAC": {},
            "LCC": {"off_map": 0.97, "off_map_expected": 0.02, "off_map_worst": 1.0, "off_map_worst_expected": 0},
        },
    )
    assert json.loads(json.dumps(found.to_json())) == {
        "inputs": 400,
        "judged": 400,
        "accuracy": 0.2,
        "accuracy_in_training": 0.99,
        "classes": 5,
        "classes_in_training": 10,
        "never_seen": [5, 6, 7, 8, 9],
        "by": "label",
        "unlike": 0.97,
        "unlike_expected": 0.02,
        "unlike_worst": 1.0,
        "unlike_worst_expected": 0,
        "duplicates": 100,
        "near_duplicates": 20,
        "mean": 0.473,
        "deviation": 0.25,
        "mean_in_training": -0.001,
        "deviation_in_training": 1.0,
        "alarms": [
            {
                "name": "unlike",
                "sentence": "97 % of these inputs are unlike anything in training: is the scaling the same?",
            },
            {
                "name": "scale",
                "sentence": "numbers in the inputs are 0.47 ± 0.25, in training data 0.00 ± 1.00: is the scaling the "
                "same?",
            },
            {
                "name": "accuracy",
                "sentence": "20 % of the answers are right, where guessing among 10 classes gives 10 %: are these the "
                "right weights and labels?",
            },
            {
                "name": "classes",
                "sentence": "5 of 10 classes never occur (5, 6, 7, 8, 9), and training data have them: is part of the "
                "suite missing?",
            },
            {"name": "duplicates", "sentence": "25 % of the inputs repeat another one: was something added twice?"},
        ],
    }
    lines = sanity_lines(found)
    assert lines[:6] == [
        "inputs            400",
        "right answers     20 % (training data 99 %)",
        "classes           5 of 10, never seen: 5-9",
        "unlike training   97 % (2.0 % expected)",
        "scale             0.47 ± 0.25 (training data 0.00 ± 1.00)",
        "duplicates        100, near duplicates 20",
    ]
    assert lines[6].startswith("ALARM unlike: 97 %")


@pytest.mark.parametrize(
    ("found", "alarms"),
    [
        (names(facts()), []),
        (names(facts(99)), []),
        (names(facts(100)), []),
        (names(facts(19, 0.0), off_map=1.0, off_map_expected=0.0), []),
        (names(facts(20, 0.0), off_map=1.0, off_map_expected=0.0), ["unlike", "accuracy"]),
        (names(facts(), off_map=0.2, off_map_expected=0.01), []),
        (names(facts(), off_map=0.22, off_map_expected=0.01), ["unlike"]),
        (names(facts(30), off_map=0.22, off_map_expected=0.1), []),
        (names(facts(), off_map=0.03, off_map_worst=0.94, off_map_worst_expected=0.02), ["unlike"]),
        (names(facts(), off_map=0.03, off_map_worst=0.45, off_map_worst_expected=0.02), []),
        (names(facts(accuracy=0.33)), ["accuracy"]),
        (names(facts(accuracy=0.48)), ["accuracy"]),
        (names(facts(accuracy=0.51)), []),
        (names(facts(classes=range(9))), ["classes"]),
        (names(facts(duplicates=0.1)), []),
        (names(facts(duplicates=0.11)), ["duplicates"]),
        (names(facts(duplicates=0.0, alike=0.4)), []),
        (names(facts(duplicates=0.05, alike=0.6)), ["duplicates"]),
    ],
)
def test_edges(found, alarms):
    assert found == alarms


def test_classes_may_be_missing_by_accident():
    rare = SuiteFacts(10_000, classes=dict.fromkeys(range(1000), 10), labelled=True)
    few = SuiteFacts(500, classes=dict.fromkeys(range(390), 1), labelled=True, training=rare)
    assert names(few) == []
    half = SuiteFacts(5000, classes=dict.fromkeys(range(500), 10), labelled=True, training=rare)
    assert names(half) == ["classes"]
    # Decisions say nothing about labels.
    decided = SuiteFacts(500, classes=dict.fromkeys(range(5), 50), labelled=False, training=TRAINING)
    assert names(decided) == []


def test_few_inputs_are_said_to_be_few():
    few, enough = (sanity_lines(judge_sanity(facts(count), {}))[0] for count in (99, 100))
    assert few == "inputs            99 (few: all figures scatter widely)"
    assert enough == "inputs            100"
