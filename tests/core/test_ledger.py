import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.core.ledger import Ledger
from neuralcov.core.ownership import GraphOwned
from neuralcov.core.records import flatten, map_tensors

CRITERIA = [nc.NC(0.5), nc.TKNC(1), nc.NLC(), nc.NLC(rule="all")]


def batch(seed):
    return Activations({"fc": torch.rand(5, 3, generator=torch.Generator().manual_seed(seed))})


def lent_ledger():
    """A ledger that goes on from states which whoever lent them will overwrite."""
    ledger = Ledger(CRITERIA)
    ledger.layout = batch(0).layout
    ledger.observe(batch(0))
    lent = map_tensors(torch.clone, ledger.states)
    ledger.advance(tuple(GraphOwned(state) for state in lent))
    return ledger, lent


def overwrite(states):
    tensors = {}
    flatten(states, "", tensors)
    for tensor in tensors.values():
        tensor.fill_(1)


@pytest.mark.parametrize(
    "action",
    [
        lambda ledger: ledger.observe(batch(1)),
        lambda ledger: ledger.observe_one_by_one(batch(1)),
        lambda ledger: ledger.admit(batch(1)),
        lambda ledger: ledger.merge(lent_ledger()[0]),
        lambda ledger: ledger.share(),
    ],
    ids=["observe", "one by one", "admit", "merge", "share"],
)
def test_nothing_that_is_kept_lies_in_borrowed_tensors(action):
    plain = Ledger(CRITERIA)
    plain.layout = batch(0).layout
    plain.observe(batch(0))
    ledger, lent = lent_ledger()
    action(plain)
    action(ledger)
    overwrite(lent)
    assert ledger.values() == plain.values()


@pytest.mark.parametrize("empty", [True, False])
def test_merging_keeps_nothing_that_the_other_borrowed(empty):
    other, lent = lent_ledger()
    ledger, plain = Ledger(CRITERIA), Ledger(CRITERIA)
    expected = Ledger(CRITERIA)
    expected.layout = batch(0).layout
    expected.observe(batch(0))
    for each in (ledger, plain):
        each.layout = batch(0).layout
        if not empty:
            each.observe(batch(1))
    ledger.merge(other)
    plain.merge(expected)
    overwrite(lent)
    assert ledger.values() == plain.values()
    assert other.values() == expected.values()


class Failing(nc.NC):
    """Breaks off after the criteria before it have overwritten their states."""

    def observe(self, state, batch, *, donate=False):
        if batch.size == 3:
            raise KeyboardInterrupt
        return super().observe(state, batch, donate=donate)


def test_an_interrupted_update_leaves_no_state_that_looks_right():
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.NLC(rule="all"), Failing(0.5)])
    coverage.update(activations=batch(0))
    start = coverage.snapshot()
    coverage.update(activations=batch(1))
    values = coverage.values()
    for action in (lambda: coverage.restore(start), coverage.reset):
        with pytest.raises(KeyboardInterrupt):
            coverage.update(activations=batch(2).take(slice(0, 3)))
        for use in (coverage.values, coverage.snapshot, lambda: coverage.update(activations=batch(1))):
            with pytest.raises(nc.NeuralcovError, match="an update was interrupted"):
                use()
        action()
        for number in [1] if coverage.inputs else [0, 1]:
            coverage.update(activations=batch(number))
        assert coverage.values() == values


def test_an_interrupted_update_spares_states_that_somebody_keeps():
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.NLC(rule="all"), Failing(0.5)])
    coverage.update(activations=batch(0))
    values = coverage.values()
    kept = coverage.snapshot()
    with pytest.raises(KeyboardInterrupt):
        coverage.update(activations=batch(2).take(slice(0, 3)))
    assert coverage.values() == values
    assert kept.states is not None
