import warnings

import numpy as np
import pytest
import torch

import neuralcov as nc
from tests.criteria.surprise.support import buckets, fitted, scores, traces, value


def brute_force(tests, classes, training, training_classes):
    """A direct loop: x_a nearest to x in its class, x_b nearest to x_a in any other, ties to the lowest index."""
    found = []
    training, tests = training.astype(np.float64), tests.astype(np.float64)
    for x, label in zip(tests, classes, strict=True):
        own, others = training[training_classes == label], training[training_classes != label]
        if not len(own) or not len(others):
            found.append(np.nan)
            continue
        to_own = np.sqrt(((own - x) ** 2).sum(1))
        nearest = own[to_own.argmin()]
        between = np.sqrt(((others - nearest) ** 2).sum(1)).min()
        if between == 0:
            found.append(0.0 if to_own.min() == 0 else np.nan)
        else:
            found.append(to_own.min() / between)
    return np.array(found)


@pytest.mark.parametrize("flavour", ["smooth", "ties", "offset"])
@pytest.mark.parametrize("width", [1, 6, 40])
def test_equals_a_direct_loop(flavour, width):
    training, classes = traces(1, 120, width, flavour=flavour)
    tests, labels = traces(2, 60, width, flavour=flavour)
    expected = brute_force(tests, labels, training, classes)
    coverage = fitted(nc.DSC(0.1), training, classes)
    np.testing.assert_allclose(scores(coverage, tests, labels), expected, rtol=1e-12)
    # Again, now that the distances between classes are kept.
    np.testing.assert_allclose(scores(coverage, tests, labels), expected, rtol=1e-12)
    assert value(coverage, tests, labels) == buckets(expected, 0.1)


def test_thousands_of_traces():
    training, classes = traces(1, 4000, 30, classes=10)
    tests, labels = traces(2, 500, 30, classes=10)
    found = scores(fitted(nc.DSC(0.1), training, classes), tests, labels)
    np.testing.assert_allclose(found, brute_force(tests, labels, training, classes), rtol=1e-12)


def test_training_inputs_have_no_surprise():
    training, classes = traces(1, 100)
    assert scores(fitted(nc.DSC(0.1), training, classes), training, classes).tolist() == [0.0] * 100


def test_measured_from_the_nearest_trace_not_from_the_input():
    training, classes = np.array([[0.0], [10.0]], np.float32), np.array([0, 1])
    found = scores(fitted(nc.DSC(0.1), training, classes), np.array([[4.0]], np.float32), np.array([0]))
    assert found.tolist() == [0.4]


def test_coinciding_classes():
    training, classes = np.array([[1.0], [1.0], [5.0]], np.float32), np.array([0, 1, 0])
    tests = np.array([[1.0], [2.0], [4.0]], np.float32)
    found = scores(fitted(nc.DSC(0.1), training, classes), tests, np.array([0, 0, 0]))
    np.testing.assert_allclose(found, [0.0, np.nan, 0.25])


def test_inputs_of_a_class_without_traces_are_left_out_and_counted():
    training, classes = traces(1, 50)
    coverage = fitted(nc.DSC(0.1), training, classes)
    tests, labels = traces(2, 6)
    labels[:2] = 7
    assert np.isnan(scores(coverage, tests, labels)[:2]).all()
    coverage.update(activations={"a": tests}, predictions=labels)
    with pytest.warns(nc.CoverageWarning, match="2 inputs were left out: their classes did not occur"):
        coverage.values()
    coverage.reset()
    coverage.update(activations={"a": tests}, predictions=np.full(6, 8))
    with pytest.raises(nc.NeuralcovError, match=r"DSC\(0.1\) could place none of 6 inputs"):
        coverage.values()


@pytest.mark.parametrize("saved", [False, True])
def test_nan_in_a_layer_that_only_another_criterion_traces(tmp_path, saved):
    """The second trace of class 0 counts for DSC, and not for LSC, whatever is calibrated together."""
    training = {"a": np.array([[0.0], [1.0], [4.0], [5.0]]), "b": np.array([[0.0], [np.nan], [1.0], [2.0]])}
    criteria = [nc.DSC(0.1, layers="a"), nc.LSC(10, layers="b"), nc.MDSC(1, layers=("a", "b"))]
    names = [criterion.name for criterion in criteria]
    tests = {"activations": {"a": np.array([[1.0]]), "b": np.array([[0.5]])}, "predictions": [0]}
    alone = {}
    for criterion in criteria:
        coverage = nc.Coverage.of_layers({"a": 1, "b": 1}, [criterion])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", nc.CoverageWarning)
            coverage.calibrate(activations=training, predictions=[0, 0, 1, 1])
        alone |= coverage.scores(**tests)
    together = nc.Coverage.of_layers({"a": 1, "b": 1}, criteria)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nc.CoverageWarning)
        together.calibrate(activations=training, predictions=[0, 0, 1, 1])
    if saved:
        together.save_calibration(tmp_path / "a.ncal")
        together = nc.Coverage.of_layers({"a": 1, "b": 1}, criteria)
        together.calibrate(tmp_path / "a.ncal")
    found = together.scores(**tests)
    for name in names:
        np.testing.assert_array_equal(found[name].numpy(), alone[name].numpy(), err_msg=name)
    assert found[names[0]].item() == 0


def test_one_class_alone_has_no_other():
    training, classes = traces(1, 20, classes=1)
    assert np.isnan(scores(fitted(nc.DSC(0.1), training, classes), training[:3], classes[:3])).all()


def test_conditioning():
    with pytest.raises(nc.NeuralcovError, match="by must be one of 'predicted', 'label'"):
        nc.DSC(0.1, by=None)
    training, classes = traces(1, 80)
    tests, labels = traces(2, 30)
    wrong = (labels + 1) % 3
    by_label = fitted(nc.DSC(0.1, by="label"), training, classes)
    np.testing.assert_allclose(
        scores(by_label, tests, labels, predictions=wrong), brute_force(tests, labels, training, classes), rtol=1e-12
    )
    by_prediction = fitted(nc.DSC(0.1), training, classes)
    np.testing.assert_allclose(
        scores(by_prediction, tests, labels, predictions=wrong),
        brute_force(tests, wrong, training, classes),
        rtol=1e-12,
    )


def test_ratio_with_an_upper_end():
    training, classes = traces(1, 80)
    tests, labels = traces(2, 30)
    surprises = brute_force(tests, labels, training, classes)
    covered = {np.floor(s / 0.1) for s in surprises}
    expected = len([s for s in covered if 0 <= s < 10]) / 10
    assert value(fitted(nc.DSC(0.1, upper=1.0), training, classes), tests, labels) == expected


def test_a_batch_larger_than_is_searched_at_once(monkeypatch):
    generator = torch.Generator().manual_seed(4)
    training, tests = (torch.randn(n, 3, generator=generator) for n in (40, 23))
    cov = nc.Coverage.of_layers({"fc": 3}, [nc.DSC(0.1)])
    cov.calibrate(activations={"fc": training}, predictions=torch.arange(40) % 4)
    asked = {"activations": {"fc": tests}, "predictions": torch.arange(23) % 4}
    whole = cov.scores(**asked)["DSC(0.1)"]
    monkeypatch.setattr("neuralcov.criteria.surprise.nearest.QUERY_ELEMENTS", 3 * 5)
    torch.testing.assert_close(cov.scores(**asked)["DSC(0.1)"], whole, rtol=0, atol=0)
    assert whole.isfinite().all()
