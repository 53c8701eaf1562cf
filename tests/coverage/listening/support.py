"""Networks to listen to, and what a user's own evaluation does with them."""

import torch
from torch import nn

import neuralcov as nc
from neuralcov.core.records import flatten
from neuralcov.testing.cases import equal_bits


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu_(self.norm(self.conv(x)))
        x = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
        return self.fc2(torch.relu_(self.drop(self.fc1(x))))


class Sometimes(nn.Module):
    """Passes by a layer where all inputs are negative."""

    def __init__(self):
        super().__init__()
        self.fc1, self.extra, self.fc2 = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        hidden = self.fc1(x)
        return self.fc2(self.extra(hidden) if bool((x > 0).any()) else hidden)


def calibrated(net, criteria, training):
    coverage = nc.Coverage(net, criteria)
    coverage.calibrate(training)
    return coverage


def run(net, loader, coverage=None):
    """What a user's own evaluation does."""
    outputs = []
    with torch.no_grad():
        for images, labels in loader:
            outputs.append(net(images))
            if coverage is not None:
                coverage.labels(labels)
    return torch.cat(outputs)


def listen_to(coverage, *steps, **options):
    """Take steps within a block."""
    with coverage.listen(**options):
        for step in steps:
            step()


def forward_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def same_states(one, other):
    """Whether two coverages have equal states, to the bit."""
    ours, theirs = {}, {}
    for left, right in zip(one._measurement.collection.states, other._measurement.collection.states, strict=True):
        if flatten(left, type(left).__name__, ours) != flatten(right, type(right).__name__, theirs):
            return False
    return ours.keys() == theirs.keys() and all(equal_bits(ours[path], theirs[path]) for path in ours)
