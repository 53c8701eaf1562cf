"""Measure how loud every neuron has become."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralcov.criteria import ALL_PROMISES, Criterion, State, in_execution_order, not_finite


@dataclass(frozen=True, eq=False)
class PeakState(State, name="acme.peaks"):
    """The largest output of every neuron, whatever its sign, per group of layers."""

    peaks: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Peaks(Criterion[PeakState]):
    """The mean over all neurons of the largest output, whatever its sign, that some input gave."""

    @property
    def promises(self):
        return ALL_PROMISES

    def init(self, layout):
        groups = layout.groups
        peaks = [torch.zeros(len(g), g.width, dtype=torch.float64, device=layout.device) for g in groups]
        return PeakState.of(layout, peaks=tuple(peaks))

    def observe(self, state, batch, *, donate=False):
        peaks = tuple(self._with(stack.pick(state.peaks), stack) for stack in batch.stacks)
        return replace(state, counts=state.counts + batch.input_counts, peaks=peaks)

    def merge(self, a, b):
        peaks = tuple(torch.maximum(x, y) for x, y in zip(a.peaks, b.peaks, strict=True))
        return replace(a, counts=a.counts + b.counts, peaks=peaks)

    def value(self, state):
        return torch.cat([peaks.flatten() for peaks in state.peaks]).mean()

    def by_layer(self, state):
        return in_execution_order(state.widths, [peaks.mean(1) for peaks in state.peaks])

    def exclusions(self, batch):
        return not_finite(batch)

    def _with(self, peaks, stack):
        # Outputs of rows that are not valid are 0, and so is every peak before the first input.
        return torch.cat([peaks[None], stack.values.abs().double()]).amax(0)
