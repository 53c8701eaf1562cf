"""A small network, measured, and headers of files."""

import torch
from torch import nn

import neuralcov as nc

INPUTS = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def measured(model, inputs, criteria=None, **options):
    coverage = nc.Coverage(model, criteria or [nc.NLC()], **options)
    coverage.update(inputs)
    return coverage
