"""Run as a program: a campaign on Ray, to be killed: ``python -m tests.distributed.ray_campaign FOLDER``."""

import sys

import torch
from torch import nn

import neuralcov as nc


def build(folder=None):
    """A fuzzer of a small network; by value, so that workers need no path to the tests."""

    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4)).eval()
        seeds = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
        return nc.Fuzzer(nc.Coverage(net, [nc.TKNC(2), nc.NC(0.3)]), seeds, folder=folder, wave=16, guide="coverage")

    return make


if __name__ == "__main__":
    from neuralcov.integrations.ray import FuzzWorkers

    with FuzzWorkers(build(), 2, num_cpus=0.5) as crew:
        build(sys.argv[1])().run(seconds=600, workers=crew)
