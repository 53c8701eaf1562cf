"""Coverage and fuzzers over small digits, and plain models whose faults are known beforehand."""

import warnings

import torch
from torch import nn

import neuralcov as nc
from neuralcov import demo
from neuralcov.fuzz.mutations import ListedMutation


def coverage_of(net, criteria):
    """A coverage, calibrated where a criterion learns."""
    coverage = nc.Coverage(net, criteria)
    if any(criterion.learns for criterion in criteria):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate([demo.digits("train").pixels()[:300]])
    return coverage


def fuzzer_of(net, digits, criteria, **settings):
    """A fuzzer that goes by Algorithm 1 unless the settings say otherwise."""
    if not {"settings", "rules"} & settings.keys():
        settings = {"guide": "coverage", **settings}
    return nc.Fuzzer(coverage_of(net, criteria), digits.inputs, digits.labels, levels=16, **settings)


class Lighter(ListedMutation):
    """Adds a constant to every pixel."""

    def __init__(self, steps=(0.05, 0.1, 0.2)):
        super().__init__("lighter", steps, geometric=False)

    def apply(self, batch, draw):
        return batch + self.table(draw, batch)[:, None, None, None]


class Nothing(ListedMutation):
    """Leaves pictures as they are."""

    def __init__(self, geometric=False):
        super().__init__("nothing", [0], geometric=geometric)

    def apply(self, batch, draw):
        return batch.clone()


class Brightness(nn.Module):
    """Class 1 for pictures whose mean is above a limit, 0 for the others."""

    def __init__(self, limit=0.5):
        super().__init__()
        self.limit = limit
        self.probe = nn.Linear(16, 6)
        nn.init.normal_(self.probe.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, images):
        features = self.probe(images.flatten(1))
        score = images.flatten(1).mean(1) - self.limit
        return torch.stack([-score, score], 1) + 0 * features.sum(1, keepdim=True)


def grey(*shades):
    """Pictures of 4 × 4 pixels, each of one shade, as bytes."""
    return torch.tensor([[[[round(255 * shade)] * 4] * 4] for shade in shades], dtype=torch.uint8)
