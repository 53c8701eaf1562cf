import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

import neuralcov as nc
from tests.criteria.surprise.support import buckets, fitted, scores, traces, value


def brute_force(tests, classes, training, training_classes, ridge):
    """A direct solve in the primal, by SciPy."""
    found = []
    for x, label in zip(tests.astype(np.float64), classes, strict=True):
        own = training[training_classes == label].astype(np.float64)
        covariance = np.cov(own.T, bias=True).reshape(own.shape[1], own.shape[1])
        covariance += ridge * np.trace(covariance) / own.shape[1] * np.eye(own.shape[1])
        found.append(mahalanobis(x, own.mean(0), np.linalg.inv(covariance)))
    return np.array(found)


@pytest.mark.parametrize("width", [1, 6, 29, 30, 31, 200])
@pytest.mark.parametrize("ridge", [1e-2, 1.0])
def test_equals_a_direct_solve_in_primal_and_dual(width, ridge):
    training, classes = traces(1, 90, width)
    tests, labels = traces(2, 40, width)
    expected = brute_force(tests, labels, training, classes, ridge)
    coverage = fitted(nc.MDSC(2, ridge=ridge), training, classes)
    np.testing.assert_allclose(scores(coverage, tests, labels), expected, rtol=1e-8)
    assert value(coverage, tests, labels) == buckets(expected, 2)


def test_thousands_of_traces():
    training, classes = traces(1, 6000, 50)
    tests, labels = traces(2, 100, 50)
    found = scores(fitted(nc.MDSC(10), training, classes), tests, labels)
    np.testing.assert_allclose(found, brute_force(tests, labels, training, classes, 1e-2), rtol=1e-9)


def test_in_the_dual_the_value_scales_with_the_root_of_the_ridge():
    training, classes = traces(1, 30, 400)
    tests, labels = traces(2, 10, 400)
    weak, strong = (scores(fitted(nc.MDSC(10, ridge=r), training, classes), tests, labels) for r in (1e-4, 1e-2))
    np.testing.assert_allclose(weak / strong, 10, rtol=0.05)


def test_a_class_of_equal_traces():
    training, classes = traces(1, 30)
    training[classes == 1] = 3.0
    tests = np.concatenate([training[classes == 1][:1], training[:1]])
    found = scores(fitted(nc.MDSC(10), training, classes), tests, np.array([1, 1]))
    np.testing.assert_allclose(found, [0.0, np.nan])


def test_one_trace_alone():
    training = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], np.float32)
    found = scores(fitted(nc.MDSC(10), training, np.array([0, 0, 1])), training[2:], np.array([1]))
    assert found.tolist() == [0.0]


def test_ridge_out_of_range():
    with pytest.raises(nc.NeuralcovError, match="ridge must be at least 1e-12"):
        nc.MDSC(ridge=0)
