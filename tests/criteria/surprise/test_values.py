"""What the surprise criteria share beyond the surprise itself: buckets up to an end, admission, definition numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from tests.criteria.surprise.support import traces

SURPRISING = [nc.LSC(2.0, 1.0), nc.DSC(0.1), nc.MDSC(0.5)]
NAMED = pytest.mark.parametrize("criterion", SURPRISING, ids=lambda criterion: criterion.name)


def on_a_line(bucket, upper, places):
    """DSC's surprise of an input at x is x / 100 times 100, as exact as x is: traces 0 and 1 are a unit apart."""
    criterion = nc.DSC(bucket, upper=upper)
    coverage = nc.Coverage.of_layers({"a": 1}, [criterion])
    coverage.calibrate(activations={"a": np.array([[0.0], [1.0]])}, predictions=[0, 1])
    rows = np.array(places, dtype=np.float64)[:, None]
    gains = coverage.gain(activations={"a": rows}, predictions=np.zeros(len(rows), int))[criterion.name]
    coverage.update(activations={"a": rows}, predictions=np.zeros(len(rows), int))
    return coverage.values()[criterion.name], gains.numpy()


@pytest.mark.parametrize(
    ("bucket", "upper", "count"),
    [(0.1, 2, 20), (0.1, 0.3, 3), (0.1, 0.7, 7), (0.3, 0.9, 3), (1, 2.5, 3), (10, 3, 1), (0.1, 0.05, 1), (7, 7, 1)],
)
def test_the_value_is_the_share_of_buckets_below_the_end(bucket, upper, count):
    middles = [(k + 0.5) * bucket for k in range(count + 5)]
    value, gains = on_a_line(bucket, upper, middles)
    assert value == 1
    assert gains.tolist() == [1 / count] * count + [0.0] * 5
    for covered in range(1, count):
        value, _ = on_a_line(bucket, upper, middles[:covered])
        assert value == covered / count


@given(st.integers(1, 400), st.integers(1, 4000), st.integers(0, 3))
def test_never_above_one_and_no_matter_of_rounding(bucket, upper, digits):
    """With decimal numbers, as people write them, the count of buckets is that of exact arithmetic."""
    exact = math.ceil(Fraction(upper, bucket))
    if exact > 300:
        return
    scale = 10.0**-digits
    places = [(k + 0.5) * bucket * scale for k in range(exact + 2)]
    value, gains = on_a_line(bucket * scale, upper * scale, places)
    assert value == 1
    assert gains.tolist() == [1 / exact] * exact + [0.0] * 2


def ready(criterion):
    training, classes = traces(1, 90)
    coverage = nc.Coverage.of_layers({"a": 6}, [criterion])
    coverage.calibrate(activations={"a": training}, predictions=classes)
    return coverage.criteria[0]


def offered():
    """Inputs of which some repeat, two are not finite, and one is of a class that training did not have."""
    rows, classes = traces(2, 40)
    rows = np.concatenate([rows, rows[:5] + np.float32(1e-6), rows[:5]])
    classes = np.concatenate([classes, classes[:5], classes[:5]])
    rows[3, 0], rows[17, 2], classes[9] = np.nan, np.inf, 11
    return Activations({"a": torch.from_numpy(rows)}, predictions=torch.from_numpy(classes))


@NAMED
@pytest.mark.parametrize("upper", [None, 4.0])
@pytest.mark.parametrize("min_gain", [-0.5, -1e-9, 0.0, 0.05, 0.5, 1.0])
def test_admits_as_the_plain_loop_does(criterion, upper, min_gain):
    criterion = ready(type(criterion)(**{**criterion.parameters, "upper": upper}))
    batch = offered()
    seen = criterion.observe(criterion.init(batch.layout), batch.take(slice(0, 6)))
    taken, state = criterion.admit(seen, batch, min_gain=min_gain)
    expected, slow = [], seen
    for index in range(batch.size):
        alone = batch.take(slice(index, index + 1))
        before = slow.counts.tolist()
        after = criterion.observe(slow, alone)
        takes_part = after.counts[0] > before[0]
        admitted = bool(takes_part) and float(criterion.value(after) - criterion.value(slow)) > min_gain
        expected.append(admitted)
        slow = after if admitted else slow
    assert taken.tolist() == expected
    assert state.seen.keys.tolist() == slow.seen.keys.tolist()
    assert (state.counts - seen.counts).tolist() == [sum(expected), 2, 1]
    if min_gain < 0:
        assert sum(expected) == batch.size - 3


@NAMED
def test_admitting_nothing_leaves_the_covered_buckets_as_they_are(criterion):
    criterion, batch = ready(criterion), offered()
    seen = criterion.observe(criterion.init(batch.layout), batch)
    before = seen.counts.clone()
    taken, state = criterion.admit(seen, batch)
    assert not taken.any()
    assert state.seen is seen.seen
    assert (state.counts - before).tolist() == [0, 2, 1]
    assert seen.counts.tolist() == before.tolist()
    empty, state = criterion.admit(seen, batch.take(slice(0, 0)), min_gain=-1)
    assert (tuple(empty.shape), state.seen) == ((0,), seen.seen)


@NAMED
def test_exclusions_are_what_observing_counts(criterion):
    criterion, batch = ready(criterion), offered()
    empty = criterion.init(batch.layout)
    alone = [criterion.observe(empty, batch.take(slice(i, i + 1))).counts.tolist() for i in range(batch.size)]
    assert criterion.exclusions(batch).tolist() == [counts.index(1) for counts in alone]


@NAMED
def test_definitions_are_numbered(criterion):
    assert type(criterion).definition == 2
    assert Criterion.definition == 1
