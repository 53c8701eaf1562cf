"""A set of kinds behaves like a counter, whether or not the room behind its kinds has been cut off."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.records import flatten, unflatten
from neuralcov.criteria import kind_set as module
from neuralcov.criteria.distinct import ABSENT, DistinctCriterion
from neuralcov.criteria.kind_set import UNKNOWN, KindSet, as_kinds, as_members
from neuralcov.testing import check_criterion
from tests.golden import subjects

CPU = torch.device("cpu")
# Few first words, so that different keys often share one; at most two do, as with real keys.
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=12)
ARRIVALS = pytest.mark.parametrize("arrival", ["at once", "never", "one batch later"])


def keys(pairs):
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)


def content(some):
    rows = zip(some.keys.tolist(), some.counts.tolist(), strict=True)
    return {tuple(key): count for key, count in rows if key != [ABSENT, ABSENT]}


@contextmanager
def played(arrival):
    """On a GPU the count of a batch arrives some time later."""
    with pytest.MonkeyPatch.context() as patched:
        if arrival != "at once":
            patched.setattr(module, "looking_is_free", lambda device: False)
            patched.setattr(module, "announce", lambda grown: grown)
        if arrival == "one batch later":
            patched.setattr(module, "cut", lambda known: known.compact())
        yield


@ARRIVALS
@given(batches=st.lists(PAIRS, max_size=5), questions=PAIRS, data=st.data())
def test_behaves_like_a_counter(arrival, batches, questions, data):
    ours, theirs = KindSet.empty(1, CPU), Counter()
    for pairs in batches:
        wanted = data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
        valid = torch.tensor(wanted, dtype=torch.bool)
        firsts, seen = [], Counter(theirs)
        for pair, good in zip(pairs, wanted, strict=True):
            firsts.append(good and pair not in seen)
            seen.update([pair] if good else [])
        with played(arrival):
            assert ours.firsts(keys(pairs), valid).tolist() == firsts
            ours, theirs = ours.add(KindSet.of(keys(pairs)), valid), seen
        assert content(ours) == theirs
        assert ours.keys[:, 0].tolist() == sorted(ours.keys[:, 0].tolist())
        assert int(ours.present().sum()) == len(theirs)
    with played(arrival):
        assert ours.contains(keys(questions)).tolist() == [pair in theirs for pair in questions]


@ARRIVALS
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), max_size=6), max_size=4)
)
def test_keeps_marks_and_the_folds_that_have_shown_a_kind(arrival, batches):
    expected, halves = {}, []
    for half in (batches[::2], batches[1::2]):
        ours = KindSet.empty(2, CPU, marked=True, folded=True)
        for batch in half:
            kinds, folds, valid = ([row[i] for row in batch] for i in range(3))
            entries = KindSet.of(
                keys([(kind, 0) for kind in kinds]),
                torch.tensor(kinds, dtype=torch.int32) % 2,
                torch.tensor(kinds, dtype=torch.int32) + 100,
                torch.tensor([1 << fold for fold in folds], dtype=torch.int16),
            )
            with played(arrival):
                ours = ours.add(entries, torch.tensor(valid, dtype=torch.bool))
            for kind, fold, good in batch:
                if good:
                    expected[kind] = expected.get(kind, 0) | 1 << fold
        halves.append(ours)
    with played(arrival):
        ours = halves[0].union(halves[1])
    ours = ours.compact()
    found = {
        key: rest
        for key, *rest in zip(
            *(part.tolist() for part in (ours.keys[:, 0], ours.columns, ours.marks, ours.folds)), strict=True
        )
    }
    assert found == {kind: [kind % 2, kind + 100, folds] for kind, folds in expected.items()}


@ARRIVALS
@given(a=PAIRS, b=PAIRS)
def test_a_union_adds_counts(arrival, a, b):
    with played(arrival):
        first, second = (KindSet.empty(1, CPU).add(KindSet.of(keys(pairs))) for pairs in (a, b))
        together = first.union(second)
    assert content(together) == Counter(a) + Counter(b)


def test_what_is_unknown_stays_unknown():
    unknown = KindSet.empty(1, CPU).add(KindSet.of(keys([(1, 0)]), counts=torch.tensor([UNKNOWN])))
    for _ in range(5):
        unknown = unknown.union(unknown).add(KindSet.of(keys([(1, 0), (2, 0)])))
    assert content(unknown)[1, 0] < 0
    assert content(unknown)[2, 0] == 31


def test_what_repeats_takes_no_room_once_the_count_is_known():
    ours = KindSet.empty(1, CPU)
    for _ in range(3):
        ours = ours.add(KindSet.of(torch.zeros(100, 2, dtype=torch.int64)))
    assert ours.keys.tolist() == [[0, 0]]
    assert ours.counts.tolist() == [300]


def test_room_behind_the_kinds_is_not_stored():
    tensors = {}
    with played("never"):
        valid = torch.tensor([True, True, True, False])
        ours = KindSet.empty(1, CPU).add(KindSet.of(keys([(2, 0), (1, 0), (2, 0), (7, 0)])), valid)
    assert len(ours.keys) == 4
    structure = flatten(ours, "seen", tensors)
    again = unflatten(structure, tensors)
    assert (again.keys.tolist(), again.counts.tolist()) == ([[1, 0], [2, 0]], [1, 2])


@given(st.lists(st.tuples(*[st.integers(-(1 << 63), ABSENT - 1)] * 4), min_size=1, max_size=6))
def test_members_are_kinds_again(rows):
    kinds = torch.tensor(rows).view(-1, 2, 2)
    for hashed in (False, True):
        members, columns, present = as_members(kinds, hashed=hashed)
        assert present.all()
        assert columns.tolist() == [0, 1] * len(rows)
        for column in (0, 1):
            assert torch.equal(as_kinds(members[column::2], column, hashed=hashed), kinds[:, column])
        alone, _, _ = as_members(kinds[:, :1], hashed=hashed)
        assert torch.equal(as_kinds(alone, None, hashed=hashed), kinds[:, 0])


@dataclass(frozen=True, eq=False)
class Loudest(DistinctCriterion):
    """Collect the loudest neuron of every layer, an even one counting half; silent layers but the first show none."""

    def columns(self, layout):
        return len(layout)

    def kinds(self, batch):
        parts = [outputs.nan_to_num().max(1) for outputs in batch.layers.values()]
        loudest = torch.stack([part.indices for part in parts], dim=1)
        silent = torch.stack([part.values <= 0 for part in parts], dim=1)
        silent[:, 0] = False
        # First words that are all alike, which a set must stand.
        kinds = torch.stack([torch.zeros_like(loudest), loudest], dim=2)
        return kinds.masked_fill(silent[:, :, None], ABSENT)

    def weights(self, keys, column):
        return torch.where(keys[:, 1] % 2 == 0, 0.5, 1.0).double()

    def reduce(self, sums):
        return sums.mean(-1)


def test_a_criterion_of_several_columns_obeys_the_laws():
    check_criterion(Loudest(), examples=10)


def test_every_column_keeps_a_set_of_its_own():
    coverage = nc.Coverage.of_layers({"a": 3, "b": 3}, [Loudest()])
    same = torch.tensor([[0.0, 1.0, 0.0]])
    coverage.update(activations={"a": same, "b": same})
    assert coverage.values() == {"Loudest": 1.0}
    other = torch.tensor([[2.0, 1.0, 0.0]])
    assert coverage.gain(activations={"a": other, "b": same})["Loudest"].tolist() == [0.25]
    assert coverage.gain(activations={"a": other, "b": -other})["Loudest"].tolist() == [0.25]


def test_kinds_are_counted_and_counts_of_older_files_are_unknown():
    outputs = {"fc": torch.tensor([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [1.0, 2.0, 3.0]])}
    batch = nc.Activations(outputs)
    criterion = nc.TKNP(2)
    state = criterion.observe(criterion.init(batch.layout), batch)
    assert sorted(criterion.times_shown(state).tolist()) == [1, 2]
    assert sorted(criterion.times_shown(criterion.merge(state, state)).tolist()) == [2, 4]
    old = nc.Coverage.load("tests/golden/schema-1/tknp.ncov")
    kept = old.snapshot().states[0].state
    assert nc.TKNP(2).times_shown(kept) is None
    assert subjects.settings()["tknp"].name in old.values()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for():
    numbers = torch.arange(1000, device="cuda") % 7
    members, _, _ = as_members(torch.stack([numbers, numbers], dim=1)[:, None])
    valid = torch.ones(1000, dtype=torch.bool, device="cuda")
    ours = KindSet.empty(1, members.device).add(KindSet.of(members), valid)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours = ours.add(KindSet.of(members), valid)
        count = ours.present().sum()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert int(count) == 7
    # The first count had arrived.
    assert len(ours.keys) == 1007


def test_figures_beside_the_value_and_fewer_inputs():
    rows = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    coverage = nc.Coverage.of_layers({"fc": 5}, [nc.TKNP(1), nc.NC(0.5)])
    assert coverage.details() == {}
    coverage.update(activations={"fc": rows})
    shown = rows.argmax(1)
    counts = torch.bincount(shown)
    figures = coverage.details()["TKNP(1)"]
    assert figures["next"] == int((counts == 1).sum()) / 60
    assert figures["to_come"] == 0
    assert coverage.rarefied(60) == {"TKNP(1)": (coverage.values()["TKNP(1)"], 0.0)}
    value, deviation = coverage.rarefied(4)["TKNP(1)"]
    draws = [len(shown[torch.randperm(60)[:4]].unique()) for _ in range(4000)]
    mean = sum(draws) / len(draws)
    assert value == pytest.approx(mean, abs=4 * deviation / len(draws) ** 0.5)
    for wrong in (0, 61, 2.5):
        with pytest.raises(nc.NeuralcovError, match="expected a whole number from 1 to 60"):
            coverage.rarefied(wrong)
