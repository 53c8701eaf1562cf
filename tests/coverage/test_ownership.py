"""Who may overwrite a state: the ordinary path copies nothing, and nothing that is kept is written to."""

from dataclasses import dataclass

import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.core.records import flatten, map_tensors
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.ownership import GraphOwned, Owned, Shared


def batch(seed, size=5):
    return Activations({"fc": torch.rand(size, 3, generator=torch.Generator().manual_seed(seed))})


def state_of(criterion, seed=0):
    return criterion.observe(criterion.init(batch(0).layout), batch(seed))


def test_an_owned_state_is_used_up_by_observing_and_by_sharing():
    criterion = nc.NLC(rule="all")
    for use in (lambda owned: owned.observe(criterion, batch(1)), lambda owned: owned.share()):
        owned = Owned(state_of(criterion))
        use(owned)
        with pytest.raises(nc.NeuralcovError, match="an update was interrupted"):
            owned.state  # noqa: B018
        with pytest.raises(nc.NeuralcovError, match="an update was interrupted"):
            use(owned)


def test_a_shared_state_stays_shared():
    criterion = nc.NLC(rule="all")
    shared = Owned(state_of(criterion)).share()
    assert shared.share() is shared
    before = shared.state.classes[0][0].moments.scatter.clone()
    after = shared.observe(criterion, batch(1))
    assert isinstance(after, Owned)
    after.observe(criterion, batch(2))
    assert torch.equal(shared.state.classes[0][0].moments.scatter, before)


@pytest.mark.parametrize("kind", [Owned, Shared])
def test_what_shares_tensors_with_a_shared_state_is_shared(kind):
    criterion = nc.NLC(rule="all")
    held = kind(state_of(criterion))
    # Inputs at the mean lower the spread, so that none is admitted and the state is handed on.
    mean = Activations({"fc": held.state.classes[0][0].moments.mean.float()})
    admitted, after = held.admit(criterion, mean, 0.0)
    assert not admitted.any()
    assert type(after) is kind
    merged = kind(state_of(criterion)).merge(criterion, Shared(state_of(criterion, 1)))
    assert isinstance(merged, Owned)
    # Of two class-wise suites that saw one class each, the merged one has the tensors of both.
    by_class = nc.NLC(classes=2)
    one, two = (
        by_class.observe(by_class.init(batch(0).layout), Activations(batch(i).layers, labels=torch.full((5,), i)))
        for i in range(2)
    )
    assert isinstance(kind(one).merge(by_class, Shared(two)), Shared)


def test_graph_owned_states_are_copied_before_they_are_used():
    criterion = nc.NLC(rule="all")
    for use in (
        lambda held: held.share(),
        lambda held: held.observe(criterion, batch(1)),
        lambda held: held.admit(criterion, batch(1), 0.0)[1],
        lambda held: held.merge(criterion, Shared(state_of(criterion, 2))),
        lambda held: held.exclude(torch.tensor([1])),
    ):
        home = state_of(criterion)
        before = home.classes[0][0].moments.scatter.clone()
        after = use(GraphOwned(home)).state
        value = criterion.value(after)
        assert torch.equal(home.classes[0][0].moments.scatter, before)
        home.classes[0][0].moments.scatter.fill_(7)
        home.counts.fill_(7)
        assert torch.equal(criterion.value(after), value)
        assert after.counts.sum() < 21


def scatter_of(collection):
    return collection.states[0].classes[0][0].moments.scatter.data_ptr()


@pytest.mark.parametrize("criterion", [nc.NLC(), nc.NLC(rule="all")], ids=lambda c: c.name)
def test_update_after_update_copies_nothing(criterion):
    collection = CriterionCollection([criterion, nc.NC(0.5), nc.TKNP(1)])
    collection.layout = batch(0).layout
    collection.observe(batch(0))
    first = scatter_of(collection), collection.states[1].covered[0].data_ptr()
    for seed in range(1, 4):
        collection.observe(batch(seed))
        collection.observe_one_by_one(batch(seed))
        assert (scatter_of(collection), collection.states[1].covered[0].data_ptr()) == first
    # A kept state is copied once; from then on updates are in place again.
    kept = collection.share()
    # Patterns seen before make TKNP hand its set on: that must not make the others copy.
    collection.observe(batch(1))
    second = scatter_of(collection)
    assert second != first[0]
    collection.observe(batch(1))
    assert scatter_of(collection) == second
    assert kept[0].state.classes[0][0].moments.scatter.data_ptr() == first[0]


@dataclass(frozen=True, eq=False)
class _HandsOn(nc.NC):
    """Breaks the contract: a batch without inputs gives the very state back, which a donated update overwrites."""

    def observe(self, state, batch, *, donate=False):
        return super().observe(state, batch, donate=donate) if batch.size else state


def test_even_a_criterion_that_hands_its_state_on_overwrites_nothing_that_is_kept():
    coverage = nc.Coverage.of_layers({"fc": 3}, [_HandsOn(0.9)])
    coverage.update(activations={"fc": torch.tensor([[0.0, 0.5, 1.0]])})
    kept, value = coverage.snapshot(), coverage.values()
    coverage.update(activations={"fc": torch.zeros(0, 3)})
    coverage.update(activations={"fc": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])})
    assert coverage.values() != value
    coverage.restore(kept)
    assert coverage.values() == value


def test_one_record_does_not_stand_for_the_states_after_two_replays():
    """LVC keeps its factorisation as long as the record it belongs to is there."""
    rows = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    coverage = nc.Coverage.of_layers({"fc": 3}, [nc.LVC()])
    coverage.calibrate(activations={"fc": rows})
    criterion = coverage.criteria[0]
    states = [
        criterion.observe(criterion.init(coverage.layout), Activations({"fc": part})) for part in rows.split([20, 40])
    ]
    home = map_tensors(torch.clone, states[0])
    assert criterion.value(GraphOwned(home).state) == criterion.value(states[0])
    for place, new in ((home.folds, states[1].folds), (home.counts, states[1].counts)):
        written, source = {}, {}
        flatten(place, "", written)
        flatten(new, "", source)
        for name, tensor in written.items():
            tensor.copy_(source[name])
    assert criterion.value(GraphOwned(home).state) == criterion.value(states[1])
    assert criterion.value(states[0]) != criterion.value(states[1])
