"""A small network and its inputs."""

import torch
from torch import nn

import neuralcov as nc

CRITERIA = [nc.NLC(), nc.NC(0.5), nc.TKNC(2)]


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)).eval()


def make_inputs():
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
