"""A small network in float64, so that results depend on no batch, and inputs to rank."""

import pytest
import torch

import neuralcov as nc


@pytest.fixture(scope="package")
def network():
    """Return a network whose sums are exact: whole numbers of few bits."""
    generator = torch.Generator().manual_seed(1)
    layers = [torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)]
    model = torch.nn.Sequential(*layers).double()
    for parameter in model.parameters():
        parameter.data = torch.randint(-4, 5, parameter.shape, generator=generator).double() / 4
    return model


@pytest.fixture(scope="package")
def inputs():
    """Return inputs: the first 120 to learn from, the others to rank."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(-16, 17, (200, 6), generator=generator).double() / 16


@pytest.fixture(scope="package")
def taught(network, inputs):
    """Return a coverage that knows the training inputs."""
    coverage = nc.Coverage(network, [nc.DSC(), nc.LCC()])
    coverage.calibrate(inputs[:120].split(50))
    return coverage
