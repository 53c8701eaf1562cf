"""LSC however far apart the traces of a class lie: against SciPy, scikit-learn and differences in longer arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import gaussian_kde
from sklearn.neighbors import KernelDensity

import neuralcov as nc
from tests.criteria.surprise.support import fitted, scores, traces, value

FAR = [1e3, 1e6, 1e12]
PRECISION = 1e-9


def brute_force(tests, labels, training, classes, bandwidth):
    """Minus the log density by SciPy's distances, which are taken of differences in float64."""
    found, width = np.empty(len(tests)), training.shape[1]
    for label in np.unique(labels):
        own, mine = training[classes == label].astype(np.float64), labels == label
        squares = cdist(tests[mine].astype(np.float64), own, "sqeuclidean")
        found[mine] = -logsumexp(squares / (-2 * bandwidth**2), axis=1)
        found[mine] += math.log(len(own)) + width * math.log(math.sqrt(2 * math.pi) * bandwidth)
    return found


def with_far_traces(size, distance, dtype, width=6, seed=1):
    """Training traces of which one of each class lies far off, and test traces near the class, between and far off."""
    training, classes = traces(seed, size, width)
    tests, labels = traces(seed + 1, 40, width)
    training, tests = training.astype(dtype), tests.astype(dtype)
    for label in range(3):
        training[np.flatnonzero(classes == label)[5]] += distance
    tests[30:35] += distance
    tests[35:] += distance / 2
    return training, classes, tests, labels


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bandwidth", [0.2, 3.0])
@pytest.mark.parametrize("distance", FAR)
def test_one_far_trace_spoils_nothing(distance, bandwidth, dtype):
    training, classes, tests, labels = with_far_traces(90, distance, dtype)
    expected = brute_force(tests, labels, training, classes, bandwidth)
    found = scores(fitted(nc.LSC(10, bandwidth), training, classes), tests, labels)
    np.testing.assert_allclose(found, expected, rtol=PRECISION)


@pytest.mark.parametrize("distance", FAR)
def test_equals_scikit_learn(distance):
    """Its trees lose digits above 80 traces (issue 7492) unless a leaf holds them all."""
    training, classes, tests, labels = with_far_traces(600, distance, np.float64)
    found = scores(fitted(nc.LSC(10, 0.5), training, classes), tests, labels)
    for label in range(3):
        kernel = KernelDensity(bandwidth=0.5, leaf_size=601).fit(training[classes == label])
        np.testing.assert_allclose(found[labels == label], -kernel.score_samples(tests[labels == label]), rtol=1e-9)


@pytest.mark.parametrize("distance", [1e3, 1e9])
def test_classes_of_several_blocks(distance, monkeypatch):
    monkeypatch.setattr("neuralcov.criteria.surprise.density.ROWS", 64)
    training, classes, tests, labels = with_far_traces(1000, distance, np.float32, 40)
    expected = brute_force(tests, labels, training, classes, 1.0)
    found = scores(fitted(nc.LSC(10, 1.0), training, classes), tests, labels)
    np.testing.assert_allclose(found, expected, rtol=PRECISION)


def test_thousands_of_traces_in_one_class():
    training, _, tests, _ = with_far_traces(9001, 1e8, np.float32, 20)
    nobody = np.zeros(9001, int)
    expected = brute_force(tests, nobody[:40], training, nobody, 0.7)
    found = scores(fitted(nc.LSC(10, 0.7, by=None), training, nobody), tests, nobody[:40])
    np.testing.assert_allclose(found, expected, rtol=PRECISION)


def test_two_clusters_far_apart_with_many_traces_that_count():
    rng = np.random.default_rng(3)
    training = rng.standard_normal((400, 5))
    training[:200] += 1e7
    tests = training[:50] + 0.5
    nobody = np.zeros(400, int)
    expected = brute_force(tests, nobody[:50], training, nobody, 2.0)
    found = scores(fitted(nc.LSC(10, 2.0, by=None), training, nobody), tests, nobody[:50])
    np.testing.assert_allclose(found, expected, rtol=PRECISION)


@pytest.mark.parametrize("parts", [1, 3])
def test_more_pairs_than_are_held_at_once(monkeypatch, parts):
    monkeypatch.setattr("neuralcov.criteria.surprise.density.PAIRS_AT_ONCE", {"cpu": 120 * 40 // parts})
    training, classes, tests, labels = with_far_traces(360, 1e6, np.float32)
    expected = brute_force(tests, labels, training, classes, 0.2)
    np.testing.assert_allclose(scores(fitted(nc.LSC(10), training, classes), tests, labels), expected, rtol=1e-9)


def test_a_surprise_near_zero():
    """Where the norm of the kernel and the distances cancel, a bound relative to either is not enough."""
    training = np.array([[0.0], [8.0]])
    step = math.sqrt(-2 * math.log(2 * math.sqrt(2 * math.pi) * 0.1)) * 0.1
    tests = np.array([[step], [step * (1 + 1e-6)], [step * (1 - 1e-6)]])
    found = scores(fitted(nc.LSC(10, 0.1, by=None), training, np.zeros(2, int)), tests, np.zeros(3, int))
    long = tests[:, 0].astype(np.longdouble)
    kernel = long**2 / (2 * np.longdouble(0.1) ** 2)
    expected = kernel + np.log(2 * np.sqrt(2 * np.longdouble(np.pi)) * np.longdouble(0.1))
    assert np.abs(found).max() < 1e-4
    np.testing.assert_allclose(found, expected.astype(float), rtol=0, atol=1e-14)


@pytest.mark.parametrize("distance", [0.0, 1e3])
def test_scotts_rule_equals_gaussian_kde(distance):
    training, classes, tests, labels = with_far_traces(600, distance, np.float64, 4)
    found = scores(fitted(nc.LSC(10, "scott"), training, classes), tests, labels)
    for label in range(3):
        kernel = gaussian_kde(training[classes == label].T, bw_method="scott")
        np.testing.assert_allclose(found[labels == label], -kernel.logpdf(tests[labels == label].T), rtol=1e-9)


def test_scotts_rule_with_a_trace_so_far_that_gaussian_kde_loses_digits():
    training, classes, tests, labels = with_far_traces(600, 1e6, np.float64, 4)
    tests = tests[:30]
    found = scores(fitted(nc.LSC(10, "scott"), training, classes), tests, labels[:30])
    expected = [long_scott(x, training[classes == label]) for x, label in zip(tests, labels, strict=False)]
    np.testing.assert_allclose(found, expected, rtol=PRECISION)


def long_scott(x, own):
    """Scott's rule in extended precision: a Cholesky factor by hand."""
    own, count, width = own.astype(np.longdouble), len(own), own.shape[1]
    centred = own - own.mean(0)
    covariance = centred.T @ centred / (count - 1) * np.longdouble(count) ** (np.longdouble(-2) / (width + 4))
    factor = np.zeros_like(covariance)
    for i in range(width):
        for j in range(i + 1):
            left = covariance[i, j] - (factor[i, :j] * factor[j, :j]).sum()
            factor[i, j] = np.sqrt(left) if i == j else left / factor[j, j]
    apart = (x - own).T
    for i in range(width):
        apart[i] = (apart[i] - (factor[i, :i, None] * apart[:i]).sum(0)) / factor[i, i]
    exponents = -(apart**2).sum(0) / 2
    top = exponents.max()
    log_norm = width * np.log(2 * np.longdouble(np.pi)) / 2 + np.log(factor.diagonal()).sum()
    return float(log_norm + np.log(np.longdouble(count)) - top - np.log(np.exp(exponents - top).sum()))


def test_the_long_reference_is_that_of_scipy_where_scipy_is_right():
    training, _, tests, _ = with_far_traces(60, 0.0, np.float64, 3)
    kernel = gaussian_kde(training.T, bw_method="scott")
    np.testing.assert_allclose([long_scott(x, training) for x in tests], -kernel.logpdf(tests.T), rtol=1e-12)


def test_scotts_rule_refuses_what_no_factor_in_float64_can_tell_from_a_plane():
    training, classes, _, _ = with_far_traces(600, 1e12, np.float64, 4)
    with pytest.raises(nc.NeuralcovError, match="class 0 lie in a plane, or so nearly that float64 cannot tell"):
        fitted(nc.LSC(10, "scott"), training, classes)


def test_scotts_rule_bears_neurons_of_different_scales():
    training, classes, tests, labels = with_far_traces(600, 0.0, np.float64, 4)
    scales = np.array([1.0, 1e9, 1e-9, 1e3])
    found = scores(fitted(nc.LSC(10, "scott", min_variance=0), training * scales, classes), tests * scales, labels)
    alone = scores(fitted(nc.LSC(10, "scott"), training, classes), tests, labels)
    np.testing.assert_allclose(found, alone + np.log(scales).sum(), rtol=PRECISION)


@pytest.mark.parametrize("bandwidth", [0.2, "scott"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_a_suite_shown_again_in_other_batches_adds_nothing(scale, dtype, bandwidth):
    training, classes = traces(1, 90)
    tests, labels = traces(2, 40)
    training, tests = (training * scale).astype(dtype), (tests * scale).astype(dtype)
    coverage = fitted(nc.LSC(10, bandwidth, min_variance=0), training, classes)
    once = value(coverage, tests, labels)
    rng = np.random.default_rng(0)
    for parts in (40, 7, 2):
        order = rng.permutation(40)
        for some in np.array_split(order, parts):
            assert value(coverage, tests[some], labels[some]) == once


def test_inputs_far_beyond_the_training_data_add_a_bucket_once():
    training, classes = traces(1, 90)
    tests, labels = traces(2, 20)
    tests = tests * np.float32(1e30)
    coverage = fitted(nc.LSC(10), training, classes)
    once = value(coverage, tests, labels)
    for index in range(20):
        assert value(coverage, tests[index : index + 1], labels[index : index + 1]) == once
    np.testing.assert_allclose(
        scores(coverage, tests, labels), brute_force(tests, labels, training, classes, 0.2), rtol=1e-9
    )


def test_surprises_beyond_float64_are_left_out_and_counted():
    training, classes = np.array([[0.0], [1.0], [1e139], [2.0]]), np.zeros(4, int)
    tests = np.array([[0.5], [1e139], [-1e139]])
    coverage = fitted(nc.LSC(10, 1e-20, by=None), training, classes)
    found = scores(coverage, tests, np.zeros(3, int))
    assert np.isnan(found).tolist() == [False, False, True]
    coverage.update(activations={"a": tests})
    with pytest.warns(nc.CoverageWarning, match="1 input was left out"):
        coverage.values()


@settings(max_examples=60)
@example(seed=0, scale=1e30, bandwidth=0.2, width=3)
@example(seed=1, scale=1e4, bandwidth=0.2, width=300)
@example(seed=23203, scale=1e9, bandwidth="scott", width=2)
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 1e4, 1e9, 1e30]),
    bandwidth=st.sampled_from([0.2, 5.0, "scott"]),
    width=st.integers(1, 5),
)
def test_splits_and_orders_agree(seed, scale, bandwidth, width):
    """Every surprise is the same in every batch and order of training, unless a bucket begins within 1e-9 of it."""
    rng = np.random.default_rng(seed)
    training, tests = rng.standard_normal((60, width)), rng.standard_normal((24, width))
    if bandwidth == "scott" and width > 20:
        return
    training[rng.integers(60)] *= scale
    tests[rng.integers(24, size=4)] *= scale
    bucket = float(10 ** rng.uniform(-2, 2))
    criterion = nc.LSC(bucket, bandwidth, by=None, min_variance=0)
    try:
        coverage = fitted(criterion, training, np.zeros(60, int))
    except nc.NeuralcovError as refused:
        assert "plane" in str(refused)  # noqa: PT017 - one far trace may leave no room for Scott's rule
        return
    whole = scores(coverage, tests, np.zeros(24, int))
    order = rng.permutation(24)
    cuts = np.sort(rng.integers(0, 25, 3))
    split = np.empty(24)
    for some in np.split(order, cuts):
        split[some] = scores(coverage, tests[some], np.zeros(len(some), int))
    shuffled = fitted(criterion, training[rng.permutation(60)], np.zeros(60, int))
    # Scott's covariance of traces a billion apart has a condition of 1e18: in another order of training it is another
    # matrix by its rounding, which no way of summing the density can undo.
    order_free = 1e-7 if bandwidth == "scott" else PRECISION
    np.testing.assert_allclose(scores(shuffled, tests, np.zeros(24, int)), whole, rtol=order_free)
    np.testing.assert_allclose(split, whole, rtol=PRECISION)
    near = np.abs(whole / bucket - np.round(whole / bucket)) <= 1e-9
    # Beyond 2^53 buckets every number is whole, and there the same bits come out.
    far = np.abs(whole / bucket) > 2**53
    same = np.floor(split / bucket) == np.floor(whole / bucket)
    assert (same | (near & ~far)).all()


def test_the_first_pass_alone_would_be_wrong(monkeypatch):
    """What the tests above see is the second pass at work."""
    training, classes, tests, labels = with_far_traces(90, 1e12, np.float64)
    tests, labels = tests[30:35] - 1e12 + 1e12, labels[30:35]
    expected = brute_force(tests, labels, training, classes, 0.2)
    found = scores(fitted(nc.LSC(10), training, classes), tests, labels)
    np.testing.assert_allclose(found, expected, rtol=PRECISION)
    monkeypatch.setattr("neuralcov.criteria.surprise.density.PRECISION", math.inf)
    assert np.abs(scores(fitted(nc.LSC(10), training, classes), tests, labels) / expected - 1).max() > 1e-3
