"""The Fréchet distance agrees with torchmetrics'."""

import pytest
import torch
from torch import nn

from neuralcov_lab.experiments.frechet import frechet_distance


class Given(nn.Module):
    num_features = 6

    def forward(self, features):
        return features


def test_it_agrees_with_torchmetrics():
    fid = pytest.importorskip("torchmetrics.image.fid")
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, 6, generator=random, dtype=torch.float64)
    ours = torch.randn(200, 6, generator=random, dtype=torch.float64) @ mixing
    theirs = torch.randn(150, 6, generator=random, dtype=torch.float64) + 0.5
    metric = fid.FrechetInceptionDistance(feature=Given(), normalize=True).set_dtype(torch.float64)
    metric.update(theirs, real=True)
    metric.update(ours, real=False)
    assert frechet_distance(ours, theirs) == pytest.approx(float(metric.compute()), rel=1e-6)


def test_of_a_set_to_itself_it_is_nothing_even_if_flat():
    flat = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    flat[:, 3] = flat[:, 0]
    assert frechet_distance(flat, flat) == pytest.approx(0, abs=1e-6)
