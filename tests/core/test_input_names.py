import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.guards import with_ordinary_tensors
from neuralcov.core.input_names import PickedColumn, checked_columns, checked_ids, pick


def batch(ids, **metadata):
    return nc.Activations({"a": torch.arange(2.0 * len(ids)).view(-1, 2)}, ids=ids, metadata=metadata)


@given(st.lists(st.text(max_size=3), max_size=8), st.data())
def test_names_follow_their_rows(ids, data):
    whole = batch(tuple(ids), place=tuple(range(len(ids))))
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), dtype=torch.bool)
    index = torch.tensor(data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=5) if ids else st.just([]))).long()
    for rows in (mask, index, slice(1, 4)):
        part = whole.take(rows)
        assert part.layers["a"][:, 0].tolist() == [2 * place for place in part.metadata["place"]]
        assert list(part.ids) == [ids[place] for place in part.metadata["place"]]


def test_joined_batches_keep_names_and_say_none_where_there_is_no_value():
    joined = nc.Activations.cat([batch(("x",), weather=("rain",)), batch((7, 8), camera=(1, 2))])
    assert joined.ids == ("x", 7, 8)
    assert joined.metadata == {"weather": ("rain", None, None), "camera": (None, 1, 2)}
    assert nc.Activations.cat([batch(("x",)), nc.Activations({"a": torch.ones(1, 2)})]).ids is None


def test_names_of_rows_on_a_device_are_looked_up_when_they_are_read():
    column = PickedColumn(("x", "y", "z"), torch.tensor([2, 0]))
    assert (len(column), column[0], column[-1:], list(column)) == (2, "z", ("x",), ["z", "x"])
    assert pick(column, slice(1, 2)) == ("x",)


def test_names_pass_through_inference_mode_and_through_layers():
    with torch.inference_mode():
        made = batch(("x", "y"), weather=("rain", "sun"))
    kept = with_ordinary_tensors(made)
    assert not kept.layers["a"].is_inference()
    assert (kept.ids, kept.metadata) == (made.ids, made.metadata)
    assert kept.only(["a"]).ids == ("x", "y")


def test_values_become_plain():
    assert checked_ids(torch.tensor([3, 4]), 2) == (3, 4)
    assert checked_columns({"t": torch.tensor([0.5]), "box": [torch.tensor([1, 2])], "n": [None]}, 1) == {
        "t": (0.5,),
        "box": ("[1, 2]",),
        "n": (None,),
    }


@pytest.mark.parametrize(
    ("ids", "metadata", "said"),
    [
        (["a"], {}, "1 id for 2 inputs: expected one for each"),
        ("ab", {}, "ids of type str: expected a list"),
        (None, {"weather": ["rain"]}, "1 value of 'weather' for 2 inputs"),
        (None, {"label": [0, 1]}, "metadata of the name 'label': tables of inputs have such a column already"),
    ],
)
def test_names_that_do_not_fit_are_refused(ids, metadata, said):
    coverage = nc.Coverage.of_layers({"a": 2}, [nc.NC(0.5)])
    with pytest.raises(nc.NeuralcovError, match=said):
        coverage.update(activations=nc.Activations({"a": torch.ones(2, 2)}, ids=ids, metadata=metadata))
    model = torch.nn.Linear(2, 2)
    with pytest.raises(nc.NeuralcovError, match=said):
        nc.Coverage(model, [nc.NC(0.5)]).update(nc.Batch(torch.ones(2, 2), ids=ids, metadata=metadata))
