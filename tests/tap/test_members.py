"""How many inputs a batch holds: rows of tensors, elements of lists, and tensors that disagree."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import neuralcov as nc
from neuralcov.core.digests import content_keys
from neuralcov.tap import Batch, Tap, unpack_batch
from neuralcov.tap.members import Members, as_arguments


def keys_of(inputs, **options):
    return Members.of(inputs, **options).keys()


def test_keys_are_those_of_the_inputs_whatever_the_batch_axis():
    x = torch.randn(6, 4, 3)
    expected = content_keys([x])
    assert torch.equal(keys_of(x), expected)
    assert torch.equal(keys_of(x.transpose(0, 1), batch_axis=1), expected)
    assert torch.equal(torch.cat([keys_of(x[:2]), keys_of(x[2:])]), expected)
    mask = torch.ones(6, 4)
    named = keys_of({"mask": mask, "x": x})
    assert torch.equal(named, content_keys([mask, x]))
    assert torch.equal(named, keys_of({"x": x, "mask": mask}))
    # What serves all inputs says nothing about any of them.
    assert torch.equal(keys_of((x, torch.ones(4, 4), torch.tensor(0.5))), expected)


def test_keys_of_images_in_a_list_do_not_depend_on_their_neighbours():
    images = [torch.randn(3, 4, 5), torch.randn(3, 2, 2), torch.randn(3, 6, 1)]
    together = keys_of((images,))
    assert together.shape == (3, 2)
    for image, key in zip(images, together, strict=True):
        assert torch.equal(keys_of(([image],))[0], key)
        assert torch.equal(content_keys([image[None]])[0], key)


def test_packed_sequences_and_empty_batches_have_no_keys():
    assert keys_of(pack_sequence([torch.zeros(3, 2), torch.zeros(1, 2)])) is None
    assert keys_of(torch.zeros(0, 3)) is None


def test_activations_carry_the_keys_of_their_inputs():
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(x.mul_(0))

    x = torch.randn(4, 3)
    expected = content_keys([x])
    batch, _ = Tap(Overwrites()).run(Batch(x.clone()))
    assert torch.equal(batch.keys, expected)
    coverage = nc.Coverage(nn.Linear(3, 2), [nc.NC()])
    assert torch.equal(coverage.run(x)[0].content_keys, expected)


def test_parts_of_a_batch_are_copies_in_the_same_structure():
    x, mask, state = torch.randn(5, 4), torch.ones(4, 4), (torch.randn(2, 5, 3), torch.randn(2, 5, 3))
    part = Members.of((x, mask, state, None, "mean")).take([1, 2])
    assert torch.equal(part[0], x[1:3])
    assert torch.equal(part[1], mask)
    assert torch.equal(part[2][1], state[1][:, 1:3])
    assert part[3:] == (None, "mean")
    part[0].zero_()
    part[1].zero_()
    assert x[1:3].any()
    assert mask.all()
    images = [torch.randn(3, 4, 5), torch.randn(3, 2, 2), torch.randn(3, 6, 1)]
    listed = Members.of((images, [{"boxes": torch.ones(1, 4)}] * 3)).take([0, 1])
    assert [len(argument) for argument in listed] == [2, 2]
    assert torch.equal(listed[0][1], images[1])
    packed = pack_sequence([torch.randn(3, 2), torch.randn(5, 2), torch.randn(1, 2)], enforce_sorted=False)
    first, second = nn.utils.rnn.unpack_sequence(Members.of(packed).take([0, 1]))
    assert torch.equal(first, nn.utils.rnn.unpack_sequence(packed)[0])
    assert torch.equal(second, nn.utils.rnn.unpack_sequence(packed)[1])


def test_tensors_that_disagree_are_asked_about():
    prompts, images = torch.zeros(5, 77, dtype=torch.long), torch.zeros(40, 3, 8, 8)
    inputs = {"input_ids": prompts, "pixel_values": images}
    with pytest.raises(nc.NeuralcovError, match=r"shapes \(5, 77\) and \(40, 3, 8, 8\) \('pixel_values'\).*unpack="):
        Members.of(inputs)
    assert Members.of(inputs, batch="pixel_values").size == 40
    assert Members.of(inputs, batch=40).size == 40
    assert torch.equal(keys_of(inputs, batch="pixel_values"), content_keys([images]))
    with pytest.raises(nc.NeuralcovError, match=r"the batch 'images', but the inputs have 'input_ids', 'pixel_values'"):
        Members.of(inputs, batch="images")
    with pytest.raises(nc.NeuralcovError, match=r"the batch 1.5: expected the number of inputs"):
        Members.of(inputs, batch=1.5)


def test_unpack_may_say_what_the_batch_is():
    item = {"text": torch.zeros(5, 7), "image": torch.zeros(40, 2)}
    batch = unpack_batch(item, unpack=lambda item: (item, None, "image"))
    assert (batch.inputs, batch.labels, batch.batch) == (item, None, "image")


def test_a_list_of_images_counts_its_elements():
    images = [torch.randn(3, 4 + i, 5) for i in range(6)]
    labels = torch.arange(6)
    for pair in ((images, labels), (tuple(images), labels)):
        batch = unpack_batch(pair)
        assert torch.equal(batch.labels, labels)
        assert Members.of(batch.inputs).size == 6
    targets = tuple({"boxes": torch.zeros(1, 4)} for _ in images)
    assert Members.of(unpack_batch((tuple(images), targets)).inputs).size == 6


def test_a_list_is_one_argument_or_several_as_the_model_says():
    class Detector(nn.Module):
        def forward(self, images, targets=None):
            return images

    class Pair(nn.Module):
        def forward(self, x, y):
            return x

    images = [torch.randn(3, 4, 5), torch.randn(3, 2, 2)]
    assert as_arguments(Detector(), images) == (images,)
    assert as_arguments(Pair(), images) == tuple(images)
    x, y = torch.randn(4, 2), torch.randn(4, 2)
    assert as_arguments(Detector(), [x, y]) == (x, y)
