"""Samples are prepared, served again, and taken in part."""

from dataclasses import replace

import pytest
import torch

from neuralcov.core.errors import InputError
from neuralcov.sources.samples import Samples


def samples():
    images = torch.arange(10 * 3 * 2 * 2, dtype=torch.uint8).reshape(10, 3, 2, 2)
    return Samples("x", images, torch.arange(10), tuple("abcdefghij"), mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))


def test_batches_are_prepared_and_can_be_iterated_twice():
    loader = samples().batches(4)
    assert len(loader) == 3
    for _ in range(2):
        parts = list(loader)
        assert [len(labels) for _, labels in parts] == [4, 4, 2]
    expected = (samples().inputs / 255 - torch.tensor([0.5, 0.4, 0.3]).view(1, 3, 1, 1)) / torch.tensor(
        [0.1, 0.2, 0.3]
    ).view(1, 3, 1, 1)
    torch.testing.assert_close(torch.cat([inputs for inputs, _ in parts]), expected)


def test_taking_some():
    some = samples().take(torch.tensor([3, 1]), "two")
    assert (some.name, some.labels.tolist(), len(some)) == ("two", [3, 1], 2)


def test_a_mean_for_each_channel_is_asked_for():
    last = Samples("shop", torch.zeros(2, 32, 32, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), ("0",))
    prepared = replace(last, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))
    with pytest.raises(InputError, match=r"shop: images of shape \(32, 32, 3\) and 3 means: .* channels first"):
        next(iter(prepared.batches(2)))
