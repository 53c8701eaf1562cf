from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch

import neuralcov as nc
from neuralcov.tap.predict import checked_classes, predicted_classes

SCORES = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 3.0]])


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        (SCORES, None),
        {"scores": SCORES},
        SimpleNamespace(logits=SCORES),
        namedtuple("Output", "logits hidden")(SCORES, torch.zeros(2, 9)),
    ],
)
def test_the_lowest_index_of_the_largest(output):
    assert predicted_classes(output, 2).tolist() == [1, 0]


@pytest.mark.parametrize("output", [torch.tensor([0.5, -1.0]), torch.tensor([[0.5], [0.0]])])
def test_one_logit_is_a_sign(output):
    assert predicted_classes(output, 2).tolist() == [1, 0]


@pytest.mark.parametrize("output", [torch.zeros(2, 3, 4), torch.zeros(3, 4), "text"])
def test_anything_else_names_predict(output):
    with pytest.raises(nc.NeuralcovError, match="pass predict="):
        predicted_classes(output, 2)


def test_a_users_function_is_checked():
    assert checked_classes([1, 0], 2).tolist() == [1, 0]
    with pytest.raises(nc.NeuralcovError, match=r"predict= returned type torch.float32 and shape \(2,\)"):
        checked_classes(torch.zeros(2), 2)
