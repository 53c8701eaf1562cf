"""Surprise, distances and clusters against SciPy and scikit-learn, with more traces than a tree's leaf holds."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import distance
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import KernelDensity, NearestNeighbors

import neuralcov as nc

SIZES = [(150, 5), (400, 3), (90, 12)]


def traces(seed, size, width, classes=2, spread=1.0):
    """Rows that float32 holds, about the mean of their class."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(size) % classes)
    means = 2 * np.random.default_rng(7).standard_normal((classes, width))
    return (means[labels] + spread * rng.standard_normal((size, width))).astype(np.float32).astype(float), labels


def scores(criterion, training, labels, tests, test_labels):
    coverage = nc.Coverage.of_layers({"fc": training.shape[1]}, [criterion])
    coverage.calibrate(activations={"fc": training}, labels=labels, predictions=labels)
    (found,) = coverage.scores(activations={"fc": tests}, labels=test_labels, predictions=test_labels).values()
    return found.numpy()


@pytest.mark.parametrize(("size", "width"), SIZES)
@pytest.mark.parametrize("bandwidth", [0.2, 1.0])
def test_lsc_is_the_kernel_density_of_scikit_learn(size, width, bandwidth):
    training, labels = traces(1, size, width)
    tests, test_labels = traces(2, 60, width, spread=1.5)
    found = scores(nc.LSC(10, bandwidth), training, labels, tests, test_labels)
    for label in range(2):
        own, some = training[labels == label], test_labels == label
        # With more than one leaf its tree loses digits: scikit-learn issue 7492.
        density = KernelDensity(bandwidth=bandwidth, leaf_size=len(own) + 1, rtol=0, atol=0).fit(own)
        np.testing.assert_allclose(found[some], -density.score_samples(tests[some]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("size", "width"), SIZES)
@pytest.mark.parametrize("by", ["predicted", None])
def test_lsc_by_scotts_rule_is_the_kernel_density_of_scipy(size, width, by):
    training, labels = traces(3, size, width)
    tests, test_labels = traces(4, 60, width, spread=1.2)
    found = scores(nc.LSC(10, "scott", by=by), training, labels, tests, test_labels)
    for label in range(2) if by else [None]:
        own = training if label is None else training[labels == label]
        some = np.ones(60, dtype=bool) if label is None else test_labels == label
        expected = -stats.gaussian_kde(own.T, bw_method="scott").logpdf(tests[some].T)
        np.testing.assert_allclose(found[some], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("size", "width"), SIZES)
@pytest.mark.parametrize("ridge", [1e-2, 1e-6])
def test_mdsc_is_the_mahalanobis_distance_of_scipy(size, width, ridge):
    training, labels = traces(5, size, width)
    tests, test_labels = traces(6, 60, width, spread=1.5)
    found = scores(nc.MDSC(10, ridge=ridge), training, labels, tests, test_labels)
    for row, label in enumerate(test_labels):
        known = EmpiricalCovariance().fit(training[labels == label])
        strength = ridge * np.trace(known.covariance_) / width
        inverse = np.linalg.inv(known.covariance_ + strength * np.eye(width))
        assert found[row] == pytest.approx(distance.mahalanobis(tests[row], known.location_, inverse), rel=1e-8)


@pytest.mark.parametrize(("size", "width"), SIZES)
@pytest.mark.parametrize("classes", [2, 5])
def test_dsc_is_a_ratio_of_nearest_distances(size, width, classes):
    training, labels = traces(8, size, width, classes)
    tests, test_labels = traces(9, 60, width, classes, spread=1.5)
    found = scores(nc.DSC(0.1), training, labels, tests, test_labels)
    apart, between = distance.cdist(tests, training), distance.cdist(training, training)
    for row, label in enumerate(test_labels):
        own = np.flatnonzero(labels == label)
        nearest = own[apart[row, own].argmin()]
        neighbours = NearestNeighbors(n_neighbors=1).fit(training[labels != label])
        assert neighbours.kneighbors(training[[nearest]])[0].item() == pytest.approx(
            between[nearest][labels != label].min()
        )
        expected = apart[row, nearest] / between[nearest][labels != label].min()
        assert found[row] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("reach", [1.5, 2.0, 4.0])
def test_clusters_by_the_distances_of_scipy(metric, reach):
    rows, _ = traces(10, 200, 4)
    apart = distance.cdist(rows, rows, metric)
    centres: list[int] = []
    for row in range(len(rows)):
        if (apart[row, centres] > reach).all():
            centres.append(row)
    coverage = nc.Coverage.of_layers({"fc": 4}, [nc.CC(reach, squared=metric == "sqeuclidean")])
    for start in range(0, 200, 33):
        coverage.update(activations={"fc": rows[start : start + 33]})
    assert list(coverage.values().values()) == [len(centres)]
    assert 2 < len(centres) < 200


def test_nlc_is_the_covariance_of_scikit_learn():
    rows, _ = traces(11, 300, 6)
    expected = np.abs(EmpiricalCovariance().fit(rows).covariance_).sum() / 36
    coverage = nc.Coverage.of_layers({"fc": 6}, [nc.NLC(rule="all")])
    for start in range(0, 300, 41):
        coverage.update(activations={"fc": rows[start : start + 41]})
    assert coverage.values()["NLC(rule=all)"] == pytest.approx(expected, rel=1e-12)


def test_lvc_is_a_difference_of_log_likelihoods():
    """log det(T + Σ) − log det T, read off the densities of two normal distributions at their means."""
    training, _ = traces(12, 500, 5)
    suite, _ = traces(13, 120, 5, spread=1.4)
    known, seen = (np.cov(rows.T, bias=True) for rows in (training, suite))
    base = known + 1e-4 * np.trace(known) / 5 * np.eye(5)
    low, high = (stats.multivariate_normal(np.zeros(5), matrix).logpdf(np.zeros(5)) for matrix in (base + seen, base))
    coverage = nc.Coverage.of_layers({"fc": 5}, [nc.LVC()])
    coverage.calibrate(activations={"fc": training})
    coverage.update(activations={"fc": suite})
    assert coverage.values()["LVC"] == pytest.approx(2 * (high - low) / (5 * np.log(2)), rel=1e-9)
