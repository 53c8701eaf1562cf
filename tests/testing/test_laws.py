"""The laws must catch criteria that break them."""

from dataclasses import dataclass, replace

import pytest
import torch

import neuralcov as nc
from neuralcov.core.slots import Ticks
from neuralcov.testing import check_criterion


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    from neuralcov.core.criterion import Criterion

    monkeypatch.setattr(Criterion, "known", dict(Criterion.known))


@dataclass(frozen=True, eq=False)
class _WrongGain(nc.NC):
    def gain(self, state, batch):
        return super().gain(state, batch) * 2


@dataclass(frozen=True, eq=False)
class _Impure(nc.NC):
    def observe(self, state, batch, *, donate=False):
        return super().observe(state, batch, donate=True)


@dataclass(frozen=True, eq=False)
class _SharesWhatItOverwrites(nc.NC):
    def observe(self, state, batch, *, donate=False):
        if batch.size == 0:
            return state
        return super().observe(state, batch, donate=donate)


@dataclass(frozen=True, eq=False)
class _Forgets(nc.NC):
    def observe(self, state, batch, *, donate=False):
        fresh = replace(state, covered=tuple(torch.zeros_like(t) for t in state.covered))
        return super().observe(fresh, batch) if batch.size else state


@dataclass(frozen=True, eq=False)
class _MergesBadly(nc.NC):
    def merge(self, a, b):
        return Ticks(a.counts + b.counts, a.widths, a.covered)


@dataclass(frozen=True, eq=False)
class _CountsNan(nc.NC):
    def _counted_hits(self, stack, group):
        return (
            self.hits(stack, group) | ~stack.counted[:, :, None]
            if stack.counted is not None
            else self.hits(stack, group)
        )


@dataclass(frozen=True, eq=False)
class _PromisesTooMuch(nc.NLC):
    @property
    def promises(self):
        return frozenset({"split-free"})


@pytest.mark.parametrize(
    ("criterion", "complaint"),
    [
        (_WrongGain(0.5), "gain of input"),
        (_Impure(0.5), "changed the state|overwrote a state"),
        (_SharesWhatItOverwrites(0.5), "overwrote a state that was not donated"),
        (_Forgets(0.5), "gain of input|value fell|in batches|duplicate"),
        (_MergesBadly(0.5), "merg"),
        (_CountsNan(0.5), "not finite"),
        (_PromisesTooMuch(), "in batches of"),
    ],
)
def test_broken_criteria_are_caught(criterion, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_criterion(criterion, examples=15)
