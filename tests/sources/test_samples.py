"""Samples are prepared, served again, and taken in part."""

import torch

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
