"""Trees of tensors: rows taken, joined and checked, whatever holds them."""

from types import SimpleNamespace

import numpy as np
import torch

from neuralcov.core.trees import cat_rows, finite_rows, plain_output, take_rows, tensors


def test_finite_rows_of_any_output():
    good, bad = torch.zeros(2, 3), torch.tensor([[0.0, 1.0], [float("inf"), 0.0]])
    assert finite_rows(good, 2).tolist() == [True, True]
    assert finite_rows({"logits": bad, "loss": torch.tensor(torch.nan)}, 2).tolist() == [True, False]
    assert finite_rows((good, [bad]), 2).tolist() == [True, False]
    assert finite_rows(torch.ones(2, dtype=torch.int64), 2).tolist() == [True, True]


def test_rows_of_any_output():
    output = {"a": torch.arange(3), "b": (torch.arange(6).reshape(3, 2), torch.tensor(7))}
    taken = take_rows(output, torch.tensor([2, 0]), 3)
    assert taken["a"].tolist() == [2, 0]
    assert taken["b"][0].tolist() == [[4, 5], [0, 1]]
    assert int(taken["b"][1]) == 7
    assert np.isscalar(take_rows(3, torch.tensor([0]), 1))


def test_joined_batches_are_taken_apart_again():
    parts = [{"a": torch.rand(n, 2), "b": (torch.rand(n), 7), "loss": torch.tensor(float(n))} for n in (3, 2)]
    whole = cat_rows(parts, [3, 2])
    assert whole["a"].shape == (5, 2)
    assert whole["b"][1] == 7
    assert float(whole["loss"]) == 3
    again = take_rows(whole, torch.tensor([3, 4]), 5)
    assert torch.equal(again["a"], parts[1]["a"])
    assert torch.equal(again["b"][0], parts[1]["b"][0])


def test_outputs_that_are_no_trees_are_their_logits():
    logits = torch.rand(2, 3)
    found = plain_output(({"inner": SimpleNamespace(logits=logits)}, [SimpleNamespace(other=1)]))
    assert list(tensors(found)) == [logits]
    assert plain_output(logits) is logits
