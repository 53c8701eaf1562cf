"""Padded reviews, which tell the tap their lengths."""

import torch

from neuralcov import NLC, Coverage
from neuralcov.sources.samples import Samples
from neuralcov_lab import zoo


def test_named_batches_tell_the_tap_which_steps_are_padding():
    tokens = torch.tensor([[3, 4, 0, 0], [5, 0, 0, 0], [2, 3, 4, 5]], dtype=torch.int16)
    texts = Samples("three", tokens, torch.tensor([0, 1, 1]), ("no", "yes"), lengths=torch.tensor([2, 1, 4]))
    network = zoo.SentimentLSTM(vocabulary=6, embedding=3, hidden=2, steps=4)
    coverage = Coverage(network, [NLC()])
    batch = next(iter(texts.named_batches(3)))
    assert set(batch) == {"tokens", "lengths", "labels"}
    coverage.assess(texts.named_batches(3), progress=False)
    assert coverage.inputs == 3
    assert len(coverage.by_layer()) == 5
