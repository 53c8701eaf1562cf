import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import neuralcov as nc
from neuralcov.tap import Batch, unpack_batch
from neuralcov.tap.names import split_names
from neuralcov.tap.signatures import Form

FORM = Form(keywords=frozenset({"x", "path"}))
OPEN = Form(keywords=frozenset({"x"}), any_keyword=True)


def test_ids_are_the_first_key_that_can_be_one():
    item = {"x": 1, "id": [3], "ids": ["a"], "labels": [0]}
    assert split_names(item, FORM) == ({"x": 1}, ["a"], {"id": [3]})
    assert split_names({"x": 1, "paths": ["p"]}, FORM) == ({"x": 1}, ["p"], {})
    assert split_names({"x": 1, "id": [3]}, FORM, ["id"]) == ({"x": 1}, None, {"id": [3]})


def test_what_the_model_has_an_argument_for_goes_to_the_model():
    assert split_names({"x": 1, "path": ["p"]}, FORM) == ({"x": 1, "path": ["p"]}, None, {})
    assert split_names({"x": 1, "path": ["p"]}, FORM, ["path"]) == ({"x": 1, "path": ["p"]}, None, {"path": ["p"]})


def test_texts_that_no_model_could_take_are_metadata():
    item = {"x": 1, "weather": ["rain"], "camera": torch.tensor([2])}
    assert split_names(item, FORM) == ({"x": 1, "camera": item["camera"]}, None, {"weather": ["rain"]})
    # One that takes any keyword may want the texts.
    assert split_names(item, OPEN) == (item, None, {})
    assert split_names(item, OPEN, ["weather", "camera"])[0] == {"x": 1}


def test_a_batch_may_be_said_part_by_part():
    said = Batch(torch.ones(2, 3), [1, 0], ids=["a", "b"], metadata={"weather": ["rain", "sun"]})
    for batch in (unpack_batch(said), unpack_batch("anything", lambda item: said)):
        assert batch.labels.tolist() == [1, 0]
        assert (batch.ids, batch.metadata) == (said.ids, said.metadata)
    assert unpack_batch(Batch(torch.ones(2, 3))).labels is None


class Scenes(Dataset):
    """A data set whose items are mappings."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        torch.manual_seed(index)
        return {"x": torch.randn(3), "labels": index % 2, "path": f"{index}.png", "weather": "rain", "camera": index}


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


def test_items_of_a_data_set_name_themselves():
    coverage = nc.Coverage(Keyword(), [nc.NC(0.5)], metadata=["camera"])
    coverage.assess(DataLoader(Scenes(), batch_size=2), per_input=True)
    table = coverage.per_input()
    assert list(table["id"]) == [f"{index}.png" for index in range(5)]
    assert list(table["weather"]) == ["rain"] * 5
    assert list(table["camera"]) == [0, 1, 2, 3, 4]
    assert list(table["label"]) == [0, 1, 0, 1, 0]
