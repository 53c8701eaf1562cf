"""Tick off neurons that were much louder than training data made them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.criteria import BitmapCriterion, Record, Statistic, number


@dataclass(frozen=True, eq=False)
class MeanLoudness(Record, name="acme.mean-loudness"):
    """Per group of layers the summed absolute outputs of every neuron, and the inputs behind them."""

    sums: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Loudness(Statistic[MeanLoudness], name="acme.loudness"):
    """Gather how loud every neuron is on average."""

    def init(self, layout):
        def zeros(*shape):
            return torch.zeros(shape, dtype=torch.float64, device=layout.device)

        groups = layout.groups
        return MeanLoudness(tuple(zeros(len(g), g.width) for g in groups), tuple(zeros(len(g)) for g in groups))

    def observe(self, gathered, batch):
        sums = tuple(s.pick(gathered.sums) + s.values.abs().double().sum(0) for s in batch.stacks)
        inputs = tuple(s.pick(gathered.inputs) + s.counts() for s in batch.stacks)
        return MeanLoudness(sums, inputs)


@dataclass(frozen=True, eq=False)
class LouderThanUsual(BitmapCriterion):
    """The share of neurons that some input made ``times`` as loud as training data do on average."""

    times: float = 3.0

    def __post_init__(self):
        number(self, "times", above=0)

    @property
    def learns(self):
        return frozenset({Loudness()})

    def hits(self, stack):
        usual = self.require_learnt()
        mean = stack.pick(usual.sums) / stack.pick(usual.inputs).clamp(min=1)[:, None]
        return stack.values.abs().double() > self.times * mean
