"""The laws must catch criteria that break them."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings

import neuralcov as nc
from neuralcov.core.errors import CalibrationError
from neuralcov.criteria.bitmap_states import BitmapState
from neuralcov.testing import check_criterion
from neuralcov.testing.cases import LawCase, make_case, random_batch
from neuralcov.testing.keeping import law_donating_writes_to_nothing_else
from neuralcov.testing.strategies import cases


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
        return BitmapState(a.counts + b.counts, a.widths, a.covered)


@dataclass(frozen=True, eq=False)
class _CountsNan(nc.NC):
    def observe(self, state, batch, *, donate=False):
        after = super().observe(state, batch, donate=donate)
        if not batch.finite.all():
            after.covered[0][:] = True
        return after


@dataclass(frozen=True, eq=False)
class _PromisesTooMuch(nc.NLC):
    @property
    def promises(self):
        return frozenset({"split-free"})


# Without an underscore, so that a file that holds one can be loaded and all laws are reached.


_starts = {}


@dataclass(frozen=True, eq=False)
class KeepsItsStart(nc.NC):
    def init(self, layout):
        return _starts.setdefault(tuple(layout.widths.values()), super().init(layout))


@dataclass(frozen=True, eq=False)
class WritesToTheBatch(nc.NC):
    def observe(self, state, batch, *, donate=False):
        after = super().observe(state, batch, donate=donate)
        if donate:
            batch.layers["layer0"].mul_(2)
        return after


@dataclass(frozen=True, eq=False)
class AdmitsWhatIsExcluded(nc.NC):
    def admit(self, state, batch, *, min_gain=0.0):
        if min_gain >= 0:
            return super().admit(state, batch, min_gain=min_gain)
        return torch.ones(batch.size, dtype=torch.bool), self.observe(state, batch)


@dataclass(frozen=True, eq=False)
class ReadsALimitBelowZeroAsZero(nc.NC):
    def admit(self, state, batch, *, min_gain=0.0):
        return super().admit(state, batch, min_gain=max(min_gain, 0.0))


@dataclass(frozen=True, eq=False)
class CountsNothingExcluded(nc.NC):
    def admit(self, state, batch, *, min_gain=0.0):
        admitted, after = super().admit(state, batch, min_gain=min_gain)
        return admitted, replace(after, counts=torch.cat([after.counts[:1], state.counts[1:]]))


@dataclass(frozen=True, eq=False)
class KnowsNoExclusions(nc.NLC):
    def exclusions(self, batch):
        return torch.zeros(batch.size, dtype=torch.int64)


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
        (WritesToTheBatch(0.5), "changed the batch|donated observations"),
        (AdmitsWhatIsExcluded(0.5), "admitted"),
        (ReadsALimitBelowZeroAsZero(0.5), "admitted"),
        (CountsNothingExcluded(0.5), "admitting counts"),
        (KnowsNoExclusions(), "admit|excluded as"),
    ],
)
def test_broken_criteria_are_caught(criterion, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_criterion(criterion, examples=15)


def test_an_empty_state_that_is_given_out_twice_is_caught():
    batch = random_batch(torch.Generator().manual_seed(0), [4, 3], 6, "smooth")
    with pytest.raises(AssertionError, match="changed what init gives"):
        law_donating_writes_to_nothing_else(LawCase(KeepsItsStart(0.5), batch, batch, batch))


@pytest.mark.parametrize("criterion", [nc.LSC(1), nc.DSC(0.1), nc.MDSC(0.5)], ids=lambda criterion: criterion.name)
def test_a_network_that_never_varies_is_no_case_for_criteria_that_refuse_it(criterion):
    """On other versions of Hypothesis such a case was drawn, and calibration's refusal read as a broken law."""
    drawn = []

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(case=cases(criterion))
    def collect(case):
        drawn.append(len(case.training.layers))

    collect()
    assert set(drawn) == {1, 2, 3}
    with pytest.raises(CalibrationError, match="no neuron of layer0 varies"):
        make_case(criterion, [3], "constant", 0, (20, 5, 3), padded=False)
