import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import neuralcov as nc
from neuralcov.tap.inputs import batch_size, padding_of, unpack_batch

X, Y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])


@pytest.mark.parametrize("pair", [(X, Y), [X, Y], (X, Y.int()), (X.numpy(), Y.numpy())])
def test_a_pair_with_integers_of_the_batch_length_is_inputs_and_labels(pair):
    batch = unpack_batch(pair)
    assert batch.inputs is pair[0]
    assert batch.labels.tolist() == Y.tolist()


@pytest.mark.parametrize("second", [Y.float(), Y[:3], Y[:, None], torch.ones(4, dtype=torch.bool), X])
def test_any_other_pair_is_two_inputs(second):
    batch = unpack_batch((X, second))
    assert batch.labels is None
    assert batch.inputs[1] is second


def test_a_mapping_is_keyword_inputs_without_labels():
    batch = unpack_batch({"input_ids": X, "labels": Y})
    assert list(batch.inputs) == ["input_ids"]
    assert torch.equal(batch.labels, Y)


def test_a_tensor_and_a_tuple_of_one():
    assert unpack_batch(X).inputs is X
    assert unpack_batch((X,)).inputs is X


def test_unpack_decides_otherwise():
    batch = unpack_batch({"image": X, "meta": {"class": Y}}, unpack=lambda item: (item["image"], item["meta"]["class"]))
    assert batch.inputs is X
    assert torch.equal(batch.labels, Y)


def test_something_else_is_refused():
    with pytest.raises(nc.NeuralcovError, match=r"a batch of type str.*pass unpack="):
        unpack_batch("image.png")


def test_labels_must_be_integers():
    with pytest.raises(nc.NeuralcovError, match=r"labels of type torch.float32 and shape \(4,\)"):
        unpack_batch({"x": X, "labels": Y.float()})


def test_batch_size():
    assert batch_size(X) == 4
    assert batch_size(torch.zeros(7, 2, 3), batch_axis=1) == 2
    assert batch_size({"a": X, "b": torch.zeros(9)}) == 4
    assert batch_size(pack_sequence([torch.zeros(3, 2), torch.zeros(1, 2)])) == 2
    with pytest.raises(nc.NeuralcovError, match="has no axis 3"):
        batch_size(X, batch_axis=3)
    with pytest.raises(nc.NeuralcovError, match="hold no tensor"):
        batch_size("x")


def test_padding():
    assert padding_of(X, None, 4) is None
    two = torch.tensor([[True, True], [False, False], [True, False], [True, False]])
    assert padding_of(torch.zeros(4), [2, 0, 1, 1], 4).mask.equal(two)
    # Inputs padded further than the longest of them: features after time, before it, and the batch in between.
    for inputs, batch_axis in ((torch.zeros(4, 9, 2), 0), (torch.zeros(4, 2, 9), 0), (torch.zeros(9, 4, 2), 1)):
        padding = padding_of(inputs, [2, 0, 1, 1], 4, batch_axis)
        assert padding.over(9)[:, :2].equal(two)
        assert not padding.over(9)[:, 2:].any()
        assert padding.over(2).equal(two)
        assert padding.over(5) is None
        assert padding.step(8).tolist() == padding.step(20).tolist() == [False] * 4
    mask = torch.tensor([[1, 0], [1, 1]])
    assert padding_of({"attention_mask": mask}, None, 2).mask.tolist() == [[True, False], [True, True]]
    assert padding_of({"lengths": np.array([1, 2])}, None, 2).mask.tolist() == [[True, False], [True, True]]
    with pytest.raises(nc.NeuralcovError, match="expected 4 integers, one per input"):
        padding_of(X, [1, 2], 4)
