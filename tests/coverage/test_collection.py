import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.core.records import flatten, map_tensors
from neuralcov.coverage.collection import CriterionCollection
from neuralcov.coverage.ownership import GraphOwned

CRITERIA = [nc.NC(0.5), nc.TKNC(1), nc.NLC(), nc.NLC(rule="all")]


def batch(seed):
    return Activations({"fc": torch.rand(5, 3, generator=torch.Generator().manual_seed(seed))})


def lent_collection():
    """A collection that goes on from states which whoever lent them will overwrite."""
    collection = CriterionCollection(CRITERIA)
    collection.layout = batch(0).layout
    collection.observe(batch(0))
    lent = map_tensors(torch.clone, collection.states)
    collection.advance(tuple(GraphOwned(state) for state in lent))
    return collection, lent


def overwrite(states):
    tensors = {}
    flatten(states, "", tensors)
    for tensor in tensors.values():
        tensor.fill_(1)


@pytest.mark.parametrize(
    "action",
    [
        lambda collection: collection.observe(batch(1)),
        lambda collection: collection.observe_one_by_one(batch(1)),
        lambda collection: collection.admit(batch(1)),
        lambda collection: collection.merge(lent_collection()[0]),
        lambda collection: collection.share(),
    ],
    ids=["observe", "one by one", "admit", "merge", "share"],
)
def test_nothing_that_is_kept_lies_in_borrowed_tensors(action):
    plain = CriterionCollection(CRITERIA)
    plain.layout = batch(0).layout
    plain.observe(batch(0))
    collection, lent = lent_collection()
    action(plain)
    action(collection)
    overwrite(lent)
    assert collection.values() == plain.values()


@pytest.mark.parametrize("empty", [True, False])
def test_merging_keeps_nothing_that_the_other_borrowed(empty):
    other, lent = lent_collection()
    collection, plain = CriterionCollection(CRITERIA), CriterionCollection(CRITERIA)
    expected = CriterionCollection(CRITERIA)
    expected.layout = batch(0).layout
    expected.observe(batch(0))
    for each in (collection, plain):
        each.layout = batch(0).layout
        if not empty:
            each.observe(batch(1))
    collection.merge(other)
    plain.merge(expected)
    overwrite(lent)
    assert collection.values() == plain.values()
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


class FailingOneByOne(nc.NLC):
    """Breaks off at an input that is far out, after those before it were observed."""

    def observe(self, state, batch, *, donate=False):
        if batch.size and float(batch.layers["fc"].max()) > 100:
            raise KeyboardInterrupt
        return super().observe(state, batch, donate=donate)


FAR = Activations({"fc": torch.cat([batch(3).layers["fc"] * 3, torch.full((1, 3), 1000.0)])})
STEPS = {
    "commit": lambda coverage: coverage.propose(activations=FAR).commit(),
    "admit": lambda coverage: coverage.admit(activations=FAR, min_gain=-1e9),
}


@pytest.mark.parametrize("step", STEPS)
def test_observing_one_by_one_is_guarded_as_well(step):
    criteria = [nc.NLC(rule="all"), FailingOneByOne(classes=None)]
    for kept in (False, True):
        coverage = nc.Coverage.of_layers({"fc": 3}, criteria)
        coverage.update(activations=batch(0))
        values, snapshot = coverage.values(), coverage.snapshot()
        if not kept:
            coverage.update(activations=batch(0).take(slice(0, 0)))
        with pytest.raises(KeyboardInterrupt):
            STEPS[step](coverage)
        if kept:
            assert coverage.values() == values
        else:
            for use in (coverage.values, coverage.snapshot, lambda c=coverage: c.inputs):
                with pytest.raises(nc.NeuralcovError, match="an update was interrupted"):
                    use()
        coverage.restore(snapshot)
        assert coverage.values() == values


# Admitting for several criteria, against NumPy.

LABELS = [0, 1, 5, 0, -1, 1, 0, 1, 1, 0, 5, 0]


def rows(seed):
    values = np.random.default_rng(seed).standard_normal((12, 4)).astype(np.float32)
    values[[3, 10], [0, 2]] = np.nan, np.inf
    return values


def nc_by_hand(seen, _):
    covered = set()
    for row in np.asarray(seen, np.float64).reshape(-1, 4):
        covered |= set(np.flatnonzero((row - row.min()) / (row.max() - row.min()) > 0.5))
    return len(covered) / 4


def nlc_by_hand(seen, labels):
    total = 0.0
    for label in range(2):
        mine = np.asarray([row for row, of in zip(seen, labels, strict=True) if of == label], np.float64)
        total += np.abs(np.cov(mine.T, bias=True)).sum() / 16 if len(mine) else 0.0
    return total / 2


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("min_gain", [-0.02, 0.0, 0.05])
@pytest.mark.parametrize("seed", range(4))
def test_admitting_for_several_criteria_is_what_the_definition_says(seed, min_gain, order):
    by_hand = {"NC(0.5)": nc_by_hand, "NLC(rule=all, classes=2)": nlc_by_hand}
    criteria = [nc.NC(0.5), nc.NLC(rule="all", classes=2)][::order]
    values = rows(seed)
    coverage = nc.Coverage.of_layers({"fc": 4}, criteria)
    coverage.update(activations={"fc": values[:1]}, labels=LABELS[:1])
    taken = [0]
    excluded = {"NC(0.5)": [0, 0], "NLC(rule=all, classes=2)": [0, 0]}

    def value(name, indices):
        placed = [i for i in indices if name == "NC(0.5)" or LABELS[i] in (0, 1)]
        return by_hand[name]([values[i] for i in placed], [LABELS[i] for i in placed])

    for index in range(1, 12):
        finite = np.isfinite(values[index]).all()
        valid = {"NC(0.5)": finite, "NLC(rule=all, classes=2)": finite and LABELS[index] in (0, 1)}
        gains = [value(name, [*taken, index]) - value(name, taken) for name in by_hand if valid[name]]
        for name, counts in excluded.items():
            counts[0] += not finite
            counts[1] += finite and not valid[name]
        if any(gain > min_gain for gain in gains):
            taken.append(index)
    admitted = coverage.admit(activations={"fc": values[1:]}, labels=LABELS[1:], min_gain=min_gain)
    assert admitted.nonzero()[:, 0].tolist() == [index - 1 for index in taken[1:]]
    for criterion, state in zip(coverage.criteria, coverage.states, strict=True):
        assert state.counts.tolist()[1:] == excluded[criterion.name]
        placed = [i for i in taken if criterion.name == "NC(0.5)" or LABELS[i] in (0, 1)]
        assert int(state.counts[0]) == len(placed)
        assert float(criterion.value(state)) == pytest.approx(value(criterion.name, taken), rel=1e-6)
    assert {(f.criterion, f.inputs) for f in coverage.findings() if "NaN" in f.sentence} == {
        ("NC(0.5)", 2),
        ("NLC(rule=all, classes=2)", 2),
    }


@pytest.mark.parametrize("criteria", [[nc.NC(0.5)], [nc.NC(0.5), nc.TKNC(1)]], ids=["one", "two"])
def test_admitting_nothing_keeps_proposals_good_and_counts_what_is_excluded(criteria):
    coverage = nc.Coverage.of_layers({"fc": 3}, criteria)
    coverage.update(activations=batch(0))
    values, states = coverage.values(), map_tensors(torch.clone, coverage.states)
    proposal = coverage.propose(activations=batch(1))
    offered = torch.cat([batch(0).layers["fc"], torch.full((2, 3), torch.nan)])
    assert not coverage.admit(activations={"fc": offered}).any()
    assert coverage.values(warn=False) == values
    for before, after in zip(states, coverage.states, strict=True):
        assert after.counts.tolist() == [5, 2, 0]
        assert all(torch.equal(a, b) for a, b in zip(before.covered, after.covered, strict=True))
    with pytest.warns(nc.CoverageWarning, match="2 inputs with NaN or infinite outputs were left out"):
        coverage.values()
    proposal.commit()
    assert coverage.inputs == 12
    older = coverage.propose(activations=batch(1))
    assert coverage.admit(activations=batch(1), min_gain=-1).all()
    with pytest.raises(nc.NeuralcovError, match="has changed since this proposal"):
        older.commit()


def other_coverage():
    other = nc.Coverage.of_layers({"fc": 3}, CRITERIA)
    other.update(activations=batch(3))
    return other


@pytest.mark.parametrize(
    "change",
    [
        lambda coverage: coverage.update(activations=batch(2)),
        lambda coverage: coverage.admit(activations=batch(2), min_gain=-1e9),
        lambda coverage: coverage.propose(activations=batch(2)).commit(),
        lambda coverage: coverage.restore(coverage.snapshot()),
        lambda coverage: coverage.merge(other_coverage()),
        lambda coverage: coverage.reset(),
    ],
    ids=["update", "admit", "commit", "restore", "merge", "reset"],
)
def test_a_proposal_older_than_the_state_is_refused(change):
    coverage = nc.Coverage.of_layers({"fc": 3}, CRITERIA)
    coverage.update(activations=batch(0))
    proposal = coverage.propose(activations=batch(1))
    coverage.gain(activations=batch(1))
    coverage.snapshot()
    change(coverage)
    with pytest.raises(nc.NeuralcovError, match="has changed since this proposal"):
        proposal.commit()


def test_commit_observes_one_by_one_in_order_for_every_criterion():
    criteria = [*CRITERIA, nc.CC(0.3), nc.SS(), nc.TKNP(1)]
    values = batch(4).layers["fc"]
    for keep in (None, [3, 0, 4], torch.tensor([True, False, True, True, False])):
        coverage, plain = (nc.Coverage.of_layers({"fc": 3}, criteria) for _ in range(2))
        for each in (coverage, plain):
            each.update(activations=batch(0))
        coverage.propose(activations={"fc": values}).commit(keep)
        for row in values if keep is None else values[keep]:
            plain.update(activations={"fc": row[None]})
        assert coverage.values() == pytest.approx(plain.values(), rel=1e-12)
        assert coverage.values()["NLC"] == plain.values()["NLC"]
