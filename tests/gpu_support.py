"""A small network, and waits for the device counted."""

import torch
from torch import nn

import neuralcov as nc

FIXED = [nc.NLC(), nc.NLC(rule="all"), nc.LVC(), nc.NC(), nc.KMNC(), nc.NBC(), nc.SNAC(), nc.TKNC(2), nc.NPC()]


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    ).cuda()  # fmt: skip
