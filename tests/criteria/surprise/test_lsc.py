import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, multivariate_normal

import neuralcov as nc
from tests.criteria.surprise.support import buckets, fitted, scores, traces, value


def brute_force(tests, classes, training, training_classes, bandwidth):
    """Minus the log mean of SciPy's normal densities around each trace of the class."""
    found = []
    for x, label in zip(tests.astype(np.float64), classes, strict=True):
        own = training[training_classes == label].astype(np.float64)
        kernel = multivariate_normal(cov=bandwidth**2 * np.eye(training.shape[1]))
        found.append(-(logsumexp(np.atleast_1d(kernel.logpdf(own - x))) - np.log(len(own))))
    return np.array(found)


@pytest.mark.parametrize("flavour", ["smooth", "ties", "offset"])
@pytest.mark.parametrize("width", [1, 6])
@pytest.mark.parametrize("bandwidth", [0.2, 3.0])
def test_fixed_bandwidth_equals_scipy(flavour, width, bandwidth):
    training, classes = traces(1, 90, width, flavour=flavour)
    tests, labels = traces(2, 40, width, flavour=flavour)
    expected = brute_force(tests, labels, training, classes, bandwidth)
    coverage = fitted(nc.LSC(10, bandwidth), training, classes)
    np.testing.assert_allclose(scores(coverage, tests, labels), expected, rtol=1e-9, atol=1e-9)
    assert value(coverage, tests, labels) == buckets(expected, 10)


def test_scotts_rule_equals_gaussian_kde_on_thousands_of_traces():
    training, classes = traces(1, 6000, 8)
    tests, labels = traces(2, 200, 8)
    found = scores(fitted(nc.LSC(10, "scott"), training, classes), tests, labels)
    for label in range(3):
        kernel = gaussian_kde(training[classes == label].astype(np.float64).T, bw_method="scott")
        expected = -kernel.logpdf(tests[labels == label].astype(np.float64).T)
        np.testing.assert_allclose(found[labels == label], expected, rtol=1e-8)


def test_far_away_is_no_infinity():
    training, classes = traces(1, 50)
    tests = training[:2] + np.array([[1e3], [1e6]], np.float32)
    found = scores(fitted(nc.LSC(10), training, classes), tests, classes[:2])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, brute_force(tests, classes[:2], training, classes, 0.2), rtol=1e-9)


def test_buckets_of_any_size_and_sign():
    training = np.zeros((4, 2), np.float32) + np.array([[0.0, 1.0]] * 2 + [[1.0, 0.0]] * 2, np.float32)
    tests = np.array([[0, 1], [0, 1.5], [1e4, 0]], np.float32)
    coverage = fitted(nc.LSC(1, 0.01, by=None), training, np.zeros(4, int))
    surprises = scores(coverage, tests, np.zeros(3, int))
    assert surprises[0] < -5
    assert surprises[2] > 1e11
    assert value(coverage, tests, np.zeros(3, int)) == 3


def test_conditioning_on_nothing():
    training, classes = traces(1, 90)
    tests, labels = traces(2, 20)
    everyone = np.zeros_like
    found = scores(fitted(nc.LSC(10, 1.0, by=None), training, classes), tests, labels)
    expected = brute_force(tests, everyone(labels), training, everyone(classes), 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_neurons_that_hardly_vary_are_left_out():
    training, classes = traces(1, 90)
    training[:, 2] = 5 + 1e-4 * training[:, 2]
    tests, labels = traces(2, 20)
    keep = [0, 1, 3, 4, 5]
    expected = brute_force(tests[:, keep], labels, training[:, keep], classes, 0.2)
    found = scores(fitted(nc.LSC(10), training, classes), tests, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(nc.NeuralcovError, match="no neuron of a varies by min_variance=1000"):
        fitted(nc.LSC(10, min_variance=1000), training, classes)


def test_chosen_layers():
    rng = np.random.default_rng(0)
    layers = {
        "conv1": rng.standard_normal((50, 3)),
        "conv2": rng.standard_normal((50, 2)),
        "fc": rng.standard_normal((50, 4)),
    }
    layers = {name: values.astype(np.float32) for name, values in layers.items()}
    both = np.concatenate([layers["conv1"], layers["fc"]], axis=1)
    expected = brute_force(both[:5], np.zeros(5), both, np.zeros(50), 0.2)
    for choice in ("*1|fc", "!conv2", ("fc", "conv1")):
        criterion = nc.LSC(10, by=None, layers=choice)
        coverage = nc.Coverage.of_layers({n: v.shape[1] for n, v in layers.items()}, [criterion, nc.MDSC(10, by=None)])
        coverage.calibrate(activations=layers)
        found = coverage.scores(activations={n: v[:5] for n, v in layers.items()})[criterion.name]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    for choice in ("dense*", ("fc", "nope")):
        coverage = nc.Coverage.of_layers({n: v.shape[1] for n, v in layers.items()}, [nc.LSC(layers=choice)])
        with pytest.raises(nc.NeuralcovError, match="of this coverage, which has conv1, conv2, fc"):
            coverage.calibrate(activations=layers, predictions=np.zeros(50, int))


def test_scotts_rule_needs_more_traces_than_neurons():
    training, classes = traces(1, 15, 6)
    with pytest.raises(nc.NeuralcovError, match="class 0 has 5 training traces of 6 neurons"):
        fitted(nc.LSC(10, "scott"), training, classes)
    training, classes = traces(1, 90, 6)
    training[:, 0] = training[:, 1]
    with pytest.raises(nc.NeuralcovError, match="lie in a plane"):
        fitted(nc.LSC(10, "scott"), training, classes)


def test_predictions_are_needed():
    training, _ = traces(1, 15)
    coverage = nc.Coverage.of_layers({"a": 6}, [nc.LSC()])
    with pytest.raises(nc.NeuralcovError, match="by='predicted' needs predictions with the training data"):
        coverage.calibrate(activations={"a": training})


@pytest.mark.parametrize(
    "arguments",
    [
        {"bucket": 0},
        {"bandwidth": 0},
        {"bandwidth": "silverman"},
        {"by": "class"},
        {"upper": -1},
        {"upper": 1e300},
        {"upper": 1.0, "bucket": 1e-320},
        {"min_variance": -1},
        {"layers": 3},
        {"memory": "?"},
    ],
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(nc.NeuralcovError, match=next(iter(arguments))):
        nc.LSC(**arguments)
