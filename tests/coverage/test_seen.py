"""Runs and sketches, against sets of whole inputs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import neuralcov as nc
from neuralcov.coverage.seen import SKETCH_SIZE, KeyRule, SeenInputs


def seen(inputs, cuts=(), rule=None):
    found = SeenInputs(rule)
    for part in np.split(np.asarray(inputs, dtype=np.float32), list(cuts)):
        found.add(nc.Activations({"a": torch.from_numpy(part)[:, None]}))
    return found


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.randoms(), st.integers(1, 40))
def test_a_run_is_the_same_in_any_order_and_batches(inputs, random, cut):
    shuffled = random.sample(inputs, len(inputs))
    one, other = seen(inputs), seen(shuffled, range(cut, len(inputs), cut))
    assert [run.id for run in one.runs] == [run.id for run in other.runs]
    assert one.common_runs(other) == other.runs
    # Twice the same input is not the same as once, nor is another input.
    assert seen([*inputs, inputs[0]]).runs[0].id != one.runs[0].id
    assert seen([*inputs[1:], 99]).runs[0].id != one.runs[0].id


@given(st.lists(st.integers(0, 60), max_size=50), st.lists(st.integers(0, 60), max_size=50))
def test_the_overlap_of_small_suites_is_exact(ours, theirs):
    assert seen(ours).overlap(seen(theirs)) == len(set(ours) & set(theirs))


@pytest.mark.parametrize(("size", "shared"), [(5_000, 500), (100_000, 1_000), (100_000, 100_000)])
def test_the_overlap_of_large_suites_is_about_right(size, shared):
    one, other = seen(np.arange(size)), seen(np.arange(size - shared, 2 * size - shared))
    assert len(one.sketch.words) == SKETCH_SIZE
    # Some hundred of the common inputs at least are in both sketches, by which chance has little to say.
    expected = shared * min(1, SKETCH_SIZE / size)
    assert one.overlap(other) == pytest.approx(shared, rel=5 / np.sqrt(expected))
    assert one.overlap(seen(np.arange(2 * size, 3 * size))) == 0


def test_merging_keeps_the_smallest_of_both():
    one, other = seen(np.arange(4_000)), seen(np.arange(3_000, 9_000))
    whole = np.concatenate([one.sketch.words, other.sketch.words])
    one.merge(other)
    assert np.array_equal(one.sketch.words, np.unique(whole)[:SKETCH_SIZE])
    assert one.sketch.words.tolist() == seen(np.arange(9_000)).sketch.words.tolist()
    assert [run.inputs for run in one.runs] == [4_000, 6_000]
    assert one.shared == pytest.approx(1_000, rel=0.2)


def test_only_what_was_taken_counts():
    batch = nc.Activations({"a": torch.arange(6.0)[:, None]})
    found = SeenInputs()
    found.add(batch, torch.tensor([True, False, True, True, False, False]))
    found.add(batch, torch.zeros(6, dtype=torch.bool))
    assert found.runs[0].inputs == 3
    assert found.runs[0].id == seen([0, 2, 3]).runs[0].id
    assert found.sketch.words.tolist() == seen([0, 2, 3]).sketch.words.tolist()


def test_a_copy_goes_its_own_way():
    one = seen([1, 2])
    other = one.copy()
    other.add(nc.Activations({"a": torch.ones(3, 1)}))
    assert (one.inputs, other.inputs) == (2, 5)
    one.end_run()
    assert len(one.runs) == len(other.runs) == 1


@pytest.mark.parametrize("rule", [None, KeyRule.of("none", None)])
def test_a_run_that_was_interrupted_goes_on(rule):
    one = seen([1, 2], rule=rule)
    one.end_run()
    one.reopen_run()
    one.add(nc.Activations({"a": torch.tensor([[3.0]])}))
    whole = seen([3, 1, 2], rule=rule)
    assert [(run.id, run.inputs) for run in one.runs] == [(run.id, run.inputs) for run in whole.runs]


def test_salted_keys_show_nothing_without_the_salt():
    mine, yours = KeyRule.of("salted", "my own"), KeyRule.of("salted", "another")
    one, same, other, plain = (seen(range(40), rule=rule) for rule in (mine, mine, yours, None))
    assert one.overlap(same) == 40
    assert one.common_runs(same)
    for stranger in (other, plain):
        assert not set(one.sketch.words.tolist()) & set(stranger.sketch.words.tolist())
        assert one.runs[0].id != stranger.runs[0].id
        assert one.overlap(stranger) == 0
        assert not one.common_runs(stranger)
    assert "my own" not in one.mark


def test_no_keys_at_all():
    nothing = seen(range(40), rule=KeyRule.of("none", None))
    assert (nothing.runs[0].id, nothing.runs[0].inputs, len(nothing.sketch.words)) == (None, 40, 0)
    assert nothing.overlap(nothing.copy()) == 0
    assert nothing.common_runs(nothing.copy()) == ()


@pytest.mark.parametrize(
    ("keys", "salt", "message"),
    [
        ("hashed", None, "keys='hashed': expected"),
        ("salted", None, "pass salt="),
        ("plain", "x", "goes with keys='sal"),
    ],
)
def test_wrong_rules(keys, salt, message):
    with pytest.raises(nc.NeuralcovError, match=message):
        KeyRule.of(keys, salt)


def test_sums_over_channels_do_not_depend_on_when_they_are_asked_for():
    """A campaign that went on after a kill has the same file as one that was never stopped."""
    pictures = torch.rand(60, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 255
    often, once = (nc.Coverage(nn.Sequential(nn.Flatten(), nn.Linear(75, 4)), [nc.NC(0.5)]) for _ in range(2))
    for batch in pictures.split(7):
        often.update(batch)
        often.to_bytes()
        once.update(batch)
    sums = [cov._measurement.seen.counts.settle().channels[3].to_json() for cov in (often, once)]
    assert sums[0] == sums[1]
    assert sums[0]["inputs"] == 60
