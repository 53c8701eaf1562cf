"""Samples served in batches, by name, and through PyTorch's own loader."""

import numpy as np
import pytest
import torch
from PIL import Image

from neuralcov import Coverage, zoo
from neuralcov.core.errors import InputError
from neuralcov.criteria import NLC
from neuralcov.zoo import Samples


@pytest.fixture
def images():
    inputs = torch.arange(5 * 3 * 4, dtype=torch.uint8).reshape(5, 3, 2, 2)
    return Samples("five", inputs, torch.tensor([0, 1, 0, 1, 1]), ("a", "b"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))


@pytest.fixture
def texts():
    tokens = torch.tensor([[3, 4, 0, 0], [5, 0, 0, 0], [2, 3, 4, 5]], dtype=torch.int16)
    return Samples("three", tokens, torch.tensor([0, 1, 1]), ("no", "yes"), lengths=torch.tensor([2, 1, 4]))


def test_a_data_loader_gives_what_batches_give(images):
    ours, theirs = list(images.batches(2)), list(images.loader(2))
    assert [len(labels) for _, labels in theirs] == [2, 2, 1]
    for (a, b), (c, d) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, d)


def test_a_data_loader_can_shuffle(images):
    random = torch.Generator().manual_seed(1)
    labels = torch.cat([labels for _, labels in images.loader(2, shuffle=True, generator=random)])
    assert sorted(labels.tolist()) == sorted(images.labels.tolist())


def test_a_dataset_ends(images):
    dataset = images.dataset()
    assert len(list(dataset)) == 5
    with pytest.raises(IndexError, match="sample 5 of 5"):
        dataset[5]


def test_lengths_follow_the_rows(texts):
    assert texts.take(torch.tensor([2, 0])).lengths.tolist() == [4, 2]
    assert texts.to("cpu").lengths.tolist() == [2, 1, 4]


def test_named_batches_tell_the_tap_which_steps_are_padding(texts):
    network = zoo.SentimentLSTM(vocabulary=6, embedding=3, hidden=2, steps=4)
    coverage = Coverage(network, [NLC()])
    batch = next(iter(texts.named_batches(3)))
    assert set(batch) == {"tokens", "lengths", "labels"}
    coverage.assess(texts.named_batches(3), progress=False)
    assert coverage.inputs == 3
    assert len(coverage.by_layer()) == 5


def test_images_have_no_named_batches(images):
    with pytest.raises(InputError, match="five has no lengths"):
        next(iter(images.named_batches()))


def test_image_folders(tmp_path):
    for name, colour in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((6, 5, 3), colour, np.uint8)).save(tmp_path / name / "one.png")
    samples = zoo.image_folder(tmp_path)
    assert samples.classes == ("cat", "dog")
    assert samples.inputs[:, 0, 0, 0].tolist() == [10, 200]
