"""Scale and colours of inputs as pure functions: against draws from a normal distribution, and at their edges."""

import tracemalloc

import numpy as np
import pytest

from neuralcov.coverage.channels import ChannelCounts
from neuralcov.results.scale import better_order, comparable, other_scale

MEAN = np.array([0.2, 0.0, -0.1])
COVARIANCE = np.array([[1.0, 0.8, 0.6], [0.8, 1.0, 0.9], [0.6, 0.9, 1.3]])


def suite(seed, count=500, mean=MEAN, covariance=COVARIANCE, factor=1.0):
    """Inputs of a normal distribution of channel means, each with pixels of deviation 0.7 about them."""
    means = factor * np.random.default_rng(seed).multivariate_normal(mean, covariance, count)
    return np.stack([means, means**2 + (0.7 * factor) ** 2], axis=2)


def counted(moments):
    return ChannelCounts.of_none(moments.shape[1]).with_inputs(moments)


def facts(moments):
    return counted(moments).facts()


TRAINING = facts(suite(0, 5000))


def log_density(points, training):
    centred = points - np.asarray(training.means)
    return -0.5 * np.einsum("ni,ij,nj->n", centred, np.linalg.inv(training.covariance), centred)


def test_facts_are_means_and_covariances():
    moments = suite(3)
    found = facts(moments)
    assert found.means == pytest.approx(moments[:, :, 0].mean(0))
    assert np.asarray(found.covariance) == pytest.approx(np.cov(moments[:, :, 0].T, bias=True))
    whole = moments[:, :, 1].mean(1)
    assert found.squares_error == pytest.approx(whole.std() / np.sqrt(len(whole)))
    variance = moments[:, :, 1].mean(0) - moments[:, :, 0].mean(0) ** 2
    assert found.deviation == pytest.approx(np.sqrt(variance.mean()))


def test_parts_add_up_and_survive_files():
    moments = suite(3)
    parts = counted(moments[:200]) + ChannelCounts.from_json(counted(moments[200:]).to_json())
    assert parts.facts().covariance == pytest.approx(np.asarray(facts(moments).covariance))
    assert parts.inputs == 500
    # Inputs with NaN are no part of it.
    moments[7, 1, 0] = np.nan
    assert counted(moments).inputs == 499


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_the_order_is_the_one_of_the_highest_likelihood(order):
    moments = suite(5)[:, list(np.argsort(order))]
    found = better_order(facts(moments), TRAINING)
    assert found == order
    gain = log_density(moments[:, list(order), 0], TRAINING) - log_density(moments[:, :, 0], TRAINING)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_no_order_is_better_for_suites_like_training_data():
    assert [better_order(facts(suite(seed, count)), TRAINING) for seed in range(1, 60) for count in (25, 400)] == [
        None
    ] * 118
    # Brighter, darker or of other colours altogether: no order is surely better.
    assert better_order(facts(suite(1, mean=MEAN + 0.7)), TRAINING) is None
    grey = facts(np.repeat(suite(1)[:, :1], 3, axis=1))
    assert better_order(grey, grey) is None
    one = facts(suite(1)[:, :1])
    assert better_order(one, one) is None


@pytest.mark.parametrize(
    ("moments", "other"),
    [
        (suite(2), False),
        (suite(2, factor=1.5), False),
        (suite(2, factor=1.8), True),
        (suite(2, factor=0.55), True),
        (suite(2, mean=MEAN + 1.5), False),
        (suite(2, mean=MEAN + 2.5), True),
    ],
)
def test_another_scale(moments, other):
    assert other_scale(facts(moments), TRAINING) is other


def test_a_few_huge_numbers_in_training_data_are_no_other_scale():
    heavy = suite(4, 1000)
    heavy[0, :, 0], heavy[0, :, 1] = 300.0, 1e5
    assert facts(heavy).deviation > 5 * TRAINING.deviation
    assert not other_scale(facts(suite(5)), facts(heavy))


def test_only_inputs_of_as_many_channels_are_comparable():
    assert comparable(TRAINING, TRAINING)
    assert not comparable(facts(suite(1)[:, :1]), TRAINING)
    assert not comparable(None, TRAINING)
    assert not comparable(TRAINING, None)
    assert counted(np.full((3, 1, 2), np.nan)).facts() is None


def test_counting_a_million_inputs_at_once_takes_little_memory():
    """Counts of a whole suite may be asked for at its end; sums over all products at once would take 200 MB."""
    moments = np.ones((1_000_000, 3, 2), np.float32)
    start = ChannelCounts.of_none(3)
    tracemalloc.start()
    try:
        found = start.with_inputs(moments)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.inputs == 1_000_000
    assert peak < 16 << 20
