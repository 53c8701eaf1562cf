"""A set of bucket numbers behaves like a set, whether or not the room behind its numbers has been cut off."""

import math
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcov.core.records import flatten, unflatten
from neuralcov.criteria import distinct as module
from neuralcov.criteria.distinct import BucketSet

CPU = torch.device("cpu")
# Few different ones, so that they repeat; some without a place; some beyond what an int64 holds.
NUMBERS = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.0, 1e300, -1e300, math.nan, math.inf]), max_size=12)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


ARRIVALS = pytest.mark.parametrize("arrival", ["at once", "never", "one batch later"])


@contextmanager
def played(arrival):
    """On a GPU the count of a batch arrives some time later."""
    with pytest.MonkeyPatch.context() as patched:
        if arrival != "at once":
            patched.setattr(module, "_announced", lambda grown, count: grown)
        if arrival == "one batch later":
            patched.setattr(module, "_cut", lambda known: known.numbers[: int(known.count())])
        yield


@ARRIVALS
@given(batches=st.lists(NUMBERS, max_size=5), questions=NUMBERS, data=st.data())
def test_behaves_like_a_set(arrival, batches, questions, data):
    ours, theirs = BucketSet.empty(CPU), set()
    for values in batches:
        wanted = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
        valid = torch.tensor(wanted, dtype=torch.bool) & tensor(values).isfinite()
        firsts, seen = [], set(theirs)
        for value, good in zip(values, valid.tolist(), strict=True):
            firsts.append(good and value not in seen)
            seen |= {value} if good else set()
        assert ours.firsts(tensor(values), valid).tolist() == firsts
        with played(arrival):
            ours, theirs = ours.add(tensor(values), valid), seen
        assert ours.numbers[ours.numbers.isfinite()].tolist() == sorted(theirs)
        assert ours.numbers.tolist() == sorted(ours.numbers.tolist())
        assert int(ours.count()) == len(theirs)
    assert ours.contains(tensor(questions)).tolist() == [q in theirs and math.isfinite(q) for q in questions]


@ARRIVALS
@given(a=NUMBERS, b=NUMBERS)
def test_union(arrival, a, b):
    with played(arrival):
        first, second = (BucketSet.empty(CPU).add(tensor(v), tensor(v).isfinite()) for v in (a, b))
        together = first.union(second)
    assert {n for n in together.numbers.tolist() if math.isfinite(n)} == {n for n in a + b if math.isfinite(n)}


def test_what_repeats_takes_no_room_once_the_count_is_known():
    ours = BucketSet.empty(CPU)
    for _ in range(3):
        ours = ours.add(torch.zeros(100, dtype=torch.float64), torch.ones(100, dtype=torch.bool))
    assert ours.numbers.tolist() == [0.0]


def test_room_behind_the_numbers_is_not_stored():
    tensors = {}
    with played("never"):
        ours = BucketSet.empty(CPU).add(tensor([2.0, 1.0, 2.0, 7.0]), torch.tensor([True, True, True, False]))
    assert ours.numbers.tolist() == [1.0, 2.0, math.inf, math.inf]
    structure = flatten(ours, "covered", tensors)
    assert unflatten(structure, tensors).numbers.tolist() == [1.0, 2.0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for():
    values = torch.arange(1000, dtype=torch.float64, device="cuda") % 7
    valid = torch.ones(1000, dtype=torch.bool, device="cuda")
    ours = BucketSet.empty(values.device).add(values, valid)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours = ours.add(values, valid)
        count = ours.count()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert int(count) == 7
    # The first count had arrived.
    assert len(ours.numbers) == 1007
