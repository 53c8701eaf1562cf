"""What tests of integrations share: a small network, batches, criteria, and a count of forward passes and hooks."""

import functools
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralcov as nc

# Bitmaps, sets of kinds, moments, clusters that depend on order, and relevance.
CRITERIA = (nc.NC(0.5), nc.TKNC(2), nc.TKNP(2), nc.NLC(), nc.CC(2))
LEARNING = (nc.LCC(), nc.KMNC(10), nc.DSC(0.1))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))


def data(size=60, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(size, 6, generator=made), torch.arange(size) % 3


def batches(size=60, batch=10, seed=1):
    inputs, labels = data(size, seed)
    return list(zip(inputs.split(batch), labels.split(batch), strict=True))


def loader(size=60, batch=10, seed=1):
    return DataLoader(TensorDataset(*data(size, seed)), batch_size=batch)


def assessed(model, criteria, loader, training=None, **options):
    """A coverage that ran the model itself, to compare with."""
    coverage = nc.Coverage(model, criteria, **options)
    if training is not None:
        coverage.calibrate(training)
    coverage.assess(loader, progress=False)
    return coverage


def same(first, second):
    """Whether two coverages saw the same, to the bit."""
    assert first.inputs == second.inputs
    assert first.values(warn=False) == second.values(warn=False)
    assert first.details() == second.details()
    assert first.sanity() == second.sanity()


def hooks(model):
    """How many hooks are on a model and its parts."""
    return sum(
        len(found)
        for module in model.modules()
        for name, found in vars(module).items()
        if name.endswith("_hooks") and "state_dict" not in name
    )


@contextmanager
def counted(model):
    """Count the calls of a model's own forward, in a list of one number."""
    calls, original = [0], type(model).forward

    @functools.wraps(original)  # a Trainer looks at the signature
    def forward(self, *args, **kwargs):
        calls[0] += self is model
        return original(self, *args, **kwargs)

    type(model).forward = forward
    try:
        yield calls
    finally:
        type(model).forward = original
