import pytest
import torch

from neuralcov.core.errors import LayerError, MismatchError
from neuralcov.core.layout import Layout, in_execution_order


def test_mapping_of_name_to_shape():
    layout = Layout({"a": 2, "b": 3})
    assert dict(layout)["b"].neurons == 3
    assert layout["a"].device == torch.device("cpu")
    assert (len(layout), layout.neurons, list(layout)) == (2, 5, ["a", "b"])
    assert layout.to("meta").device.type == "meta"


def test_groups_and_back():
    widths = [4, 2, 4, 3, 2]
    groups = Layout({str(i): w for i, w in enumerate(widths)}).groups
    assert [(g.width, g.positions) for g in groups] == [(4, (0, 2)), (2, (1, 4)), (3, (3,))]
    rows = [torch.tensor([float(p) for p in g.positions]) for g in groups]
    assert in_execution_order(widths, rows).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"a": 2}, "lacks layer 'b'"),
        ({"a": 2, "b": 4}, "layer 'b' has 4 neurons in it but 3"),
        ({"a": 2, "b": 3, "c": 1}, "has layer 'c'"),
        ({"b": 3, "a": 2}, "in another order"),
    ],
)
def test_differences_are_named(other, message):
    with pytest.raises(MismatchError, match=message):
        Layout({"a": 2, "b": 3}).require_same(Layout(other), "it")


def test_no_layers():
    with pytest.raises(LayerError, match="no layers"):
        Layout({})
