"""Evidence as plain data: canonical form, digest, refusals, and what a second measurement must give."""

import dataclasses
import hashlib
import json

import pytest

from neuralcov.core.errors import MismatchError, StateFileError
from neuralcov.core.findings import LayerRow
from neuralcov.results import Results
from neuralcov.results.evidence import make_evidence, read_evidence
from neuralcov.results.gate import Check, Verdict
from neuralcov.results.policy import Basis, Policy
from neuralcov.results.verification import verdicts_again, verify


def result(value=0.5, **more):
    return Results(
        model="m", suite="s", inputs=20, values={"NC(0.75)": value}, details={"NC(0.75)": {"error": float("nan")}},
        layers=(LayerRow("fc", 4, {"NC(0.75)": value}),), findings=(), calibration={"NC(0.75)": None},
        definitions={"NC(0.75)": 1}, **more,
    )  # fmt: skip


def evidence(value=0.5, **changes):
    parts = {
        "made": "2026-01-02T03:04:05Z",
        "identity": {
            "model": {"id": "a" * 64},
            "suite": {"runs": [{"id": "b" * 32, "inputs": 20}]},
            "preprocessing": {"told": None, "sha256": hashlib.sha256(b"null").hexdigest()},
            "calibration": {"learnt": {"NC(0.75)": None}},
        },
        "procedure": {
            "criteria": [{"name": "NC(0.75)", "definition": 1}],
            "layers": [["fc", 4]],
            "device": {"name": "cpu"},
            "batch_size": 10,
            "precision": {"parameters": ["float32"]},
            "order": "d" * 16,
        },
        "software": {"torch": "2.9"},
    }
    return make_evidence(result(value), **{**parts, **changes})


def with_(part, **changes):
    made = evidence()
    return evidence(**{part: {**getattr(made, part), **changes}})


def test_the_file_is_canonical_and_has_its_own_digest():
    text = evidence().to_text()
    content = json.loads(text)
    told = content.pop("sha256")
    spelt = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert told == hashlib.sha256(spelt.encode()).hexdigest()
    assert text == json.dumps({**content, "sha256": told}, sort_keys=True, separators=(",", ":")) + "\n"
    assert content["results"]["details"] == {"NC(0.75)": {"error": None}}
    again = read_evidence(text.encode(), "e.json")
    assert (again, again.sha256) == (evidence(), told)
    # Another spelling of the same data is the same evidence.
    assert read_evidence(json.dumps(json.loads(text), indent=2).encode(), "e.json").sha256 == told


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"inputs":20', '"inputs":21', 1), "it was changed"),
        (lambda text: text.replace('"schema":1', '"schema":2'), "upgrade neuralcov"),
        (lambda text: text[:-20], "damaged"),
        (lambda text: text.replace('"neuralcov":"evidence"', '"neuralcov":"state"'), "not an evidence file"),
        (lambda text: text.replace('"made":', '"made":"x","made":', 1), "stands twice"),
        (lambda text: text.replace('"made":', '"more":1,"made":', 1), "parts that evidence does not have"),
        (lambda text: text.replace("0.5", "NaN", 1), "no number of JSON"),
        (lambda text: "[" * 100_000, "damaged"),
        (lambda text: "[]", "not an evidence file"),
        (lambda text: text.replace('"relative":0.01', '"relative":-1'), "no number from 0 on"),
        (lambda text: text.replace('"thresholds":[]', '"thresholds":[3]'), "another form"),
        (lambda text: "\udcff" + text, "damaged"),
    ],
)
def test_what_is_refused(change, said):
    with pytest.raises(StateFileError, match=said):
        read_evidence(change(evidence().to_text()).encode(errors="surrogateescape"), "e.json")


def test_to_the_bit_where_everything_is_as_in_the_file():
    found = verify(evidence(), evidence(), "e.json")
    assert (found.exact, found.agrees, found.differs) == (True, True, ())
    found = verify(evidence(0.5), evidence(0.5 + 2**-53), "e.json")
    assert found.exact
    wrong = [figure.name for figure in found.figures if not figure.agrees]
    assert wrong == ["values.NC(0.75)", "layers.fc.values.NC(0.75)"]


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("software", {"torch": "2.8"}),
        ("software", {"cuda": "13"}),
        ("procedure", {"batch_size": 11}),
        ("procedure", {"device": {"name": "NVIDIA H200"}}),
        ("procedure", {"precision": {"parameters": ["float16"]}}),
        ("procedure", {"order": "e" * 16}),
        ("procedure", {"order": None}),
    ],
)
def test_within_the_tolerance_elsewhere(part, changes):
    other = with_(part, **changes)
    for stated, again in ((evidence(), other), (other, evidence())):
        found = verify(stated, again, "e.json")
        assert (found.exact, found.agrees, len(found.differs)) == (False, True, 1)
        near, far = (dataclasses.replace(again, results=evidence(value).results) for value in (0.5049, 0.5051))
        assert verify(stated, near, "e.json").agrees
        assert not verify(stated, far, "e.json").agrees


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("identity", {"model": {"id": "f" * 64}}, "was measured on weights aaaaaaaaaaaa…, this model has ffff"),
        ("identity", {"suite": {"runs": [{"id": "e" * 32, "inputs": 20}]}}, "is about the inputs bbbb"),
        ("identity", {"preprocessing": {"sha256": "e" * 64}}, "preprocessing"),
        ("identity", {"calibration": {"learnt": {"NC(0.75)": "x"}}}, "training data"),
        ("procedure", {"criteria": [{"name": "NC(0.5)"}]}, "other criteria"),
        ("procedure", {"layers": [["fc", 5]]}, "other layers"),
    ],
)
def test_what_does_not_fit(part, changes, said):
    with pytest.raises(MismatchError, match=said):
        verify(evidence(), with_(part, **changes), "e.json")


def test_figures_that_only_one_side_has_differ():
    more = make_evidence(
        result(before={"NC(0.75)": 0.1}), **{k: v for k, v in dataclasses.asdict(evidence()).items()
                                             if k in ("made", "identity", "procedure", "software")},
    )  # fmt: skip
    assert not verify(evidence(), more, "e.json").agrees
    assert not verify(more, evidence(), "e.json").agrees


def test_thresholds_are_judged_again():
    policy = Policy(
        least={"NC(0.75)": 0.4}, most={"inputs": 10}, bases={("min", "NC(0.75)"): Basis("SR-1", "half of the neurons")}
    )
    checks = (Check("NC(0.75)", True, "…", asks="min"), Check("inputs", False, "…", asks="max"))
    stated = evidence().judged(policy, Verdict("s", checks))
    assert stated.thresholds[0] == {
        "asks": "min", "figure": "NC(0.75)", "limit": 0.4, "place": None, "requirement": "SR-1",
        "reason": "half of the neurons",
    }  # fmt: skip
    assert all(figure.agrees for figure in verdicts_again(stated, result()))
    assert [figure.agrees for figure in verdicts_again(stated, result(0.3))] == [False, True]
    forged = evidence().judged(policy, Verdict("s", tuple(dataclasses.replace(c, met=True) for c in checks)))
    assert [figure.agrees for figure in verdicts_again(forged, result())] == [True, False]
    assert read_evidence(stated.to_text().encode(), "e").sha256 == stated.sha256
