"""One suite on two networks: groupings against scikit-learn, decisions and answers by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralcov.core.errors import InputError, MismatchError
from neuralcov.report.models import change_lines, change_tables
from neuralcov.results import InputTable
from neuralcov.results.models import Answers, Decision, Moved, adjusted_rand, compare_tables
from neuralcov.results.table_file import read_table

metrics = pytest.importorskip("sklearn.metrics")
GROUPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40)


@settings(derandomize=True, deadline=None)
@given(GROUPS)
def test_agreement_is_that_of_scikit_learn(pairs):
    first, second = zip(*pairs, strict=True)
    assert adjusted_rand(first, second) == pytest.approx(metrics.adjusted_rand_score(first, second), abs=1e-12)
    assert adjusted_rand([f"kind {one}" for one in first], second) == adjusted_rand(first, second)


@pytest.mark.parametrize(("groups", "noise"), [(3, 0.0), (30, 0.1), (300, 0.9), (2000, 0.5)])
def test_agreement_of_many(groups, noise):
    rng = np.random.default_rng(groups)
    first = rng.integers(0, groups, 5000)
    second = np.where(rng.random(5000) < noise, rng.integers(0, groups, 5000), (first + 1) % groups)
    found = adjusted_rand(first.tolist(), second.tolist())
    assert found == pytest.approx(metrics.adjusted_rand_score(first, second), abs=1e-12)


def test_trivial_groupings():
    for first, second in (("a", "b"), ("", ""), ("abc", "xyz"), ("aaa", "xxx")):
        assert adjusted_rand(first, second) == 1.0


def table(keys, predictions, kinds=None, labels=None):
    columns = {"id": [f"{key}.png" for key in keys], "key": list(keys), "prediction": predictions}
    columns |= {} if labels is None else {"label": labels}
    return InputTable(columns | ({} if kinds is None else {"LCC.kind": kinds}))


def test_what_changes():
    first = table("abcde", [0, 1, 1, 2, 0], ["x", "x", "y", "y", "z"], [0, 1, 0, 2, None])
    # Another order, and other words for the kinds.
    second = table("edcba", [1, 2, 0, 0, 0], ["q", "p", "r", "r", "r"], [None, 2, 0, 1, 0])
    found = compare_tables(first, second, ("old", "new"))
    assert (found.inputs, found.decided, found.otherwise, found.notes) == (5, 5, 3, ())
    # What was right and is wrong comes first; what has no label last.
    assert found.decisions == (Decision("b.png", 1, 1, 0), Decision("c.png", 0, 1, 0), Decision("e.png", None, 0, 1))
    assert found.answers == Answers(both=2, first_only=1, second_only=1, neither=0)
    (kinds,) = found.groupings
    assert (kinds.column, kinds.inputs, kinds.groups, kinds.pairs) == ("LCC.kind", 5, (3, 3), (1, 1, 2))
    expected = metrics.adjusted_rand_score([0, 0, 1, 1, 2], [0, 0, 0, 1, 2])
    assert kinds.agreement == pytest.approx(expected)
    assert kinds.changed == 4
    assert kinds.moved == (
        Moved("c.png", 1, 2, 0), Moved("d.png", 1, 0, 0), Moved("a.png", 1, 2, 1), Moved("b.png", 1, 2, 1)
    )  # fmt: skip
    shown = change_lines(found)
    assert shown[0] == "3 of 5 inputs (60 %) are decided otherwise"
    assert shown[1].startswith("right answers: 0.7500 = 0.7500 (± 0.3536, input by input): 1 became wrong, 1 became")
    assert "LCC.kind: 3 kinds against 3 of 5 inputs, agreement 0.211" in shown[2]
    assert [each.row_count for each in change_tables(found)] == [3, 4]
    assert len(compare_tables(first, second, listed=1).decisions) == 1
    assert [(each.title, each.row_count) for each in change_tables(found, most=1)] == [
        ("decided otherwise, 1 of 3", 1),
        ("other companions by LCC.kind, 1 of 4", 1),
    ]
    assert json.loads(json.dumps(found.to_json()))["answers"]["first_only"] == 1


def test_the_same_twice():
    one = table("abc", [0, 1, 2], ["x", "x", "y"], [0, 1, 1])
    found = compare_tables(one, one)
    assert (found.otherwise, found.groupings[0].agreement, found.groupings[0].changed) == (0, 1.0, 0)
    assert (found.answers.error, found.answers.differ) == (0.0, False)
    assert list(change_tables(found)) == []


def test_the_error_of_paired_answers():
    rng = np.random.default_rng(0)
    right = rng.random((400, 2)) < [0.9, 0.8]
    right[:200, 1] = right[:200, 0]
    counted = [int((right == pair).all(1).sum()) for pair in ((1, 1), (1, 0), (0, 1), (0, 0))]
    found = Answers(*counted)
    difference = right[:, 1].astype(float) - right[:, 0]
    assert found.accuracy[1] - found.accuracy[0] == pytest.approx(difference.mean())
    assert found.error == pytest.approx(difference.std() / 20)
    assert found.differ is bool(abs(difference.mean()) > 2 * difference.std() / 20)


def test_inputs_that_are_not_in_both():
    found = compare_tables(table("aabc", [0, 0, 1, 2]), table("abd", [0, 2, 1]), ("old", "new"))
    assert (found.inputs, found.otherwise) == (2, 1)
    assert found.notes == (
        "1 input of old is not in the other and is left out",
        "1 input of old has the content of another and counts once",
        "1 input of new is not in the other and is left out",
        "kinds are not compared: measure with LCC, whose tables have a column 'LCC.kind'",
    )
    with pytest.raises(MismatchError, match="no input is in both old and new: is it the same suite"):
        compare_tables(table("ab", [0, 1]), table("cd", [0, 1]), ("old", "new"))
    with pytest.raises(InputError, match="first: the table has no column 'key'"):
        compare_tables(InputTable({"id": ["a"]}), table("a", [0]))


def test_inputs_without_decision_or_kind_are_left_out():
    found = compare_tables(table("abc", [0, None, 2], ["x", None, "y"]), table("abc", [1, 1, 2], ["p", "q", "r"]))
    assert (found.decided, found.otherwise, found.answers, found.groupings[0].inputs) == (2, 1, None, 2)
    bare = compare_tables(InputTable({"id": ["a"], "key": ["a"]}), table("a", [0]))
    assert (bare.decided, bare.notes[0]) == (None, "decisions are not compared: a table has no column 'prediction'")


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_tables_are_read_back(tmp_path, ending):
    written = InputTable(
        {
            "id": ["a, b.png", '"c"'],
            "key": ["00ff", "10aa"],
            "weather": ["rain", None],
            "label": np.array([1, 2]),
            "prediction": [None, 0],
            "excluded": ["", "NaN or infinite outputs"],
            "NC(0.5).first": [3, 0],
            "DSC(0.1).score": [0.125, float("nan")],
            "LCC.kind": ["0f", None],
        }
    )
    written.write(tmp_path / f"t{ending}")
    assert list(read_table(tmp_path / f"t{ending}")) == list(written)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.txt", "", "expected a table of inputs, .csv or .jsonl"),
        ("t.csv", "", "which has a column 'id'"),
        ("t.csv", "id,key\n1\n", "line 2 has 1 value, the first 2"),
        ("t.csv", "id,label\n1,x\n", "no table of inputs .invalid literal"),
        ("t.jsonl", "[1]\n", "line 1 has other columns"),
        ("t.jsonl", '{"id": 1}\n{"key": 1}\n', "line 2 has other columns"),
        ("t.jsonl", "{", "no table of inputs"),
    ],
)
def test_what_is_no_table(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_table(tmp_path / name)
    with pytest.raises(InputError, match="there is no such file"):
        read_table(tmp_path / "nowhere.csv")
