"""Samples served in batches and by name."""

import numpy as np
import pytest
import torch
from PIL import Image

from neuralcov.core.errors import InputError
from neuralcov.sources.data import image_folder
from neuralcov.sources.samples import Samples


@pytest.fixture
def images():
    inputs = torch.arange(5 * 3 * 4, dtype=torch.uint8).reshape(5, 3, 2, 2)
    return Samples("five", inputs, torch.tensor([0, 1, 0, 1, 1]), ("a", "b"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))


@pytest.fixture
def texts():
    tokens = torch.tensor([[3, 4, 0, 0], [5, 0, 0, 0], [2, 3, 4, 5]], dtype=torch.int16)
    return Samples("three", tokens, torch.tensor([0, 1, 1]), ("no", "yes"), lengths=torch.tensor([2, 1, 4]))


def test_lengths_follow_the_rows(texts):
    assert texts.take(torch.tensor([2, 0])).lengths.tolist() == [4, 2]
    assert texts.to("cpu").lengths.tolist() == [2, 1, 4]


def test_images_have_no_named_batches(images):
    with pytest.raises(InputError, match="five has no lengths"):
        next(iter(images.named_batches()))


def test_image_folders(tmp_path):
    for name, colour in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((6, 5, 3), colour, np.uint8)).save(tmp_path / name / "one.png")
    samples = image_folder(tmp_path)
    assert samples.classes == ("cat", "dog")
    assert samples.inputs[:, 0, 0, 0].tolist() == [10, 200]
