"""Galleries and how few inputs would do, from tables whose answers are plain to see."""

import numpy as np
import pytest

from neuralcov.results import InputTable
from neuralcov.results.galleries import View, fewer_inputs, make_galleries, rows_to_show, wrong_inputs
from neuralcov.results.join import join_tables


def table(**columns):
    return InputTable({"id": tuple(f"i{n}" for n in range(6)), **columns})


def by_title(found):
    return {gallery.title: [(item.id, item.why) for item in gallery.items] for gallery in found}


def test_the_highest_scores_are_most_surprising():
    scores = {"DSC(0.1).score": np.array([1.0, np.nan, 3.0, 2.0, np.inf, 0.5])}
    shown = by_title(make_galleries(table(**scores), {}, {}))["Most surprising"]
    assert [name for name, _ in shown] == ["i2", "i3", "i0", "i5"]
    assert shown[0][1] == "DSC 3"


def test_what_the_model_said_and_what_inputs_look_like_stand_beside_them():
    columns = {"D(1).score": [2.0, 1.0, 0.0, 0.0, 0.0, 0.0], "label": np.array([1] * 6), "prediction": [2] * 6}
    views = {0: View(b"\x89PNG"), 1: View(text="tokens 1")}
    (gallery,) = make_galleries(table(**columns), views, {})
    first, second = gallery.items[:2]
    assert (first.label, first.prediction, first.picture, first.text) == ("1", "2", b"\x89PNG", None)
    assert second.text == "tokens 1"
    (gallery,) = make_galleries(table(**columns, text=["a good film"] + [None] * 5), views, {})
    assert [item.text for item in gallery.items[:2]] == ["a good film", "tokens 1"]


def test_pairs_that_are_alike_stand_side_by_side():
    alike = {"LCC.alike": ["a", "b", "a", None, "b", None], "prediction": [0, 1, 0, 0, 2, 0]}
    shown = by_title(make_galleries(table(**alike), {}, {}))["Near duplicates"]
    # The pair that the model tells apart comes first.
    assert [name for name, _ in shown] == ["i1", "i4", "i0", "i2"]
    assert shown[0][1] == "in every layer like i4"
    shown = by_title(make_galleries(table(key=["x", "y", "z", "x", "w", "v"], **alike), {}, {}))
    assert [name for name, _ in shown["Duplicates"]] == ["i0", "i3"]


def test_what_adds_most_and_nothing():
    columns = {"NC.first": np.array([3, 0, 1, 0, 0, 2]), "LCC.first": [1, 0, 0, 1, 0, 0], "X.first": [0] * 6}
    shown = by_title(make_galleries(table(**columns), {}, {}))
    assert shown["Adding most"] == [("i0", "3 shown first"), ("i5", "2 shown first"), ("i2", "1 shown first")]
    assert [name for name, _ in shown["Adding nothing"]] == ["i1", "i4"]
    assert rows_to_show(table(**columns), {4: "near", 5: "near"}) == [0, 5, 2, 1, 4]
    assert make_galleries(table(**{"X.first": [0] * 6}), {}, {}) == ()


def test_so_few_inputs_keep_at_least_what_is_said():
    rng = np.random.default_rng(0)
    cells = rng.random((40, 200)) < 0.05
    seen, first = np.zeros(200, bool), []
    for row in cells:
        first.append(int((row & ~seen).sum()))
        seen |= row
    labels, said = rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    columns = {"KMNC.first": np.array(first), "label": labels, "prediction": said, "id": range(40)}
    found = fewer_inputs(InputTable(columns), ["SNAC", "KMNC"])
    assert found.criterion == "KMNC"
    assert found.sizes[-1] == 40
    order = np.argsort(-np.array(first), kind="stable")
    wrong = labels != said
    for size, share, mistakes in zip(found.sizes, found.shares, found.mistakes, strict=True):
        chosen = order[:size]
        assert cells[chosen].any(0).sum() / seen.sum() >= share - 1e-12
        assert mistakes == pytest.approx(wrong[chosen].sum() / wrong.sum())
    for share in (0.5, 0.8, 0.9, 0.95, 0.99, 1.0):
        assert any(kept >= share - 1e-12 for kept in found.shares)
    assert found.shares[-1] == 1.0


def test_nothing_is_said_where_nothing_is_counted():
    assert fewer_inputs(table(), ["NC"]) is None
    assert fewer_inputs(table(**{"NC.first": [0] * 6}), ["NC"]) is None
    assert wrong_inputs(table(label=[1] * 6)) is None
    assert wrong_inputs(table(label=[None] * 6, prediction=[1] * 6)) is None
    assert wrong_inputs(table(label=[1, None, 1, 1, 1, 1], prediction=[1, 1, 2, 1, 1, 1])) == [
        False, False, True, False, False, False,
    ]  # fmt: skip


def test_tables_join_by_content_and_keep_what_does_not_depend_on_order():
    first = InputTable({"id": ["a", "b"], "key": ["1", "2"], "label": np.array([0, 1]), "NC.first": [5, 0]})
    second = InputTable(
        {"id": ["c", "d", "e"], "key": ["2", "3", "3"], "weather": ["rain", "sun", None], "excluded": [""] * 3}
    )
    joined, places = join_tables(first, second)
    assert list(joined) == [
        {"id": "a", "key": "1", "label": 0, "weather": None, "excluded": ""},
        {"id": "b", "key": "2", "label": 1, "weather": None, "excluded": ""},
        {"id": "d", "key": "3", "label": None, "weather": "sun", "excluded": ""},
        {"id": "e", "key": "3", "label": None, "weather": None, "excluded": ""},
    ]
    assert places == {0: 1, 1: 2, 2: 3}
    without = InputTable({"id": ["a", "b"]})
    joined, places = join_tables(first, without)
    assert (len(joined), "key" in joined.columns) == (4, True)
    assert places == {0: 2, 1: 3}
