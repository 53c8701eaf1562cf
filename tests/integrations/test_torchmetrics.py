"""The metric, beside others of torchmetrics."""

import pickle

import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.integrations.torchmetrics import CoverageMetric
from neuralcov.integrations.trackers import metrics_of
from tests.integrations.parts import CRITERIA, LEARNING, assessed, batches, counted, data, hooks, network, same

pytestmark = pytest.mark.filterwarnings("ignore")
ALL = (*CRITERIA, *LEARNING)


def metric(model, criteria=ALL):
    coverage = nc.Coverage(model, criteria)
    coverage.calibrate(batches(seed=2), progress=False)
    return CoverageMetric(coverage)


def plain(found):
    return {key: float(value) for key, value in found.items()}


@pytest.mark.parametrize("way", ["update", "forward", "listen"])
def test_values_are_those_of_assess(way):
    model = network().eval()
    found, expected = metric(model), assessed(model, ALL, batches(), batches(seed=2))
    with counted(model) as passes:
        if way == "listen":
            with found.listen():
                for inputs, labels in batches():
                    with torch.no_grad():
                        model(inputs)
                    found.coverage.labels(labels)
        else:
            for inputs, labels in batches():
                getattr(found, way)(inputs=inputs, labels=labels)
    assert passes == [6]
    assert found.update_called
    assert plain(found.compute()) == pytest.approx(metrics_of(expected), rel=0, abs=0, nan_ok=True)
    same(found.coverage, expected)
    assert not hooks(model)


def test_forward_tells_what_a_batch_covers_alone():
    model = network()
    found = metric(model)
    for inputs, labels in batches():
        alone = assessed(model, ALL, [(inputs, labels)], batches(seed=2))
        assert plain(found(inputs=inputs, labels=labels)) == pytest.approx(metrics_of(alone), abs=0, rel=0, nan_ok=True)


def test_criteria_that_need_relevance():
    model = network()
    first, second = (metric(model, [nc.NPC()]) for _ in range(2))
    inputs, labels = data()
    first.update(inputs=inputs, labels=labels)
    second(inputs=inputs, labels=labels)
    assert plain(first.compute()) == plain(second.compute())


def test_activations_in_place_of_inputs():
    found = CoverageMetric(nc.Coverage.of_layers({"fc": 2}, [nc.NC(0.75)]))
    given = {"fc": torch.tensor([[0.0, 1.0]])}
    assert plain(found(activations=given)) == plain(found.compute()) == {"inputs": 1, "nc_0.75": 0.5}


def test_reset_keeps_calibration():
    found = metric(network())
    found.update(inputs=data()[0], labels=data()[1])
    before = plain(found.compute())
    found.reset()
    assert found.coverage.inputs == 0
    assert not found.update_called
    found.update(inputs=data()[0], labels=data()[1])
    assert plain(found.compute()) == pytest.approx(before, rel=0, abs=0, nan_ok=True)


def test_what_was_observed_since_is_computed():
    found = metric(network())
    found.update(inputs=data()[0])
    assert found.compute()["inputs"] == 60
    found.coverage.update(data(seed=3)[0])
    assert found.compute()["inputs"] == 120


def test_beside_other_metrics():
    model = network().eval()
    together = MetricCollection({"coverage": metric(model), "accuracy": MulticlassAccuracy(3, average="micro")})
    for inputs, labels in batches():
        with torch.no_grad():
            together.update(inputs=inputs, labels=labels, preds=model(inputs), target=labels)
    found, expected = plain(together.compute()), assessed(model, ALL, batches(), batches(seed=2))
    assert found["nc_0.5"] == expected.values()["NC(0.5)"]
    assert found["accuracy"] == pytest.approx(expected.sanity().accuracy)
    together.reset()
    assert together["coverage"].coverage.inputs == 0
    with pytest.raises(TypeError):
        together.update(model(inputs), labels)  # scores, which must not be taken for inputs


def test_copies_are_independent_and_of_the_same_model():
    model = network()
    found = metric(model)
    found.update(inputs=data()[0])
    twin = found.clone()
    assert twin.coverage.model is model
    twin.update(inputs=data(seed=3)[0])
    assert (found.coverage.inputs, twin.coverage.inputs) == (60, 120)
    copies = MetricCollection([found]).clone(prefix="test/")
    assert copies.compute()["test/inputs"] == 60


def test_pickled():
    found = metric(network())
    found.update(inputs=data()[0])
    back = pickle.loads(pickle.dumps(found))
    assert plain(back.compute()) == pytest.approx(plain(found.compute()), rel=0, abs=0, nan_ok=True)
    back.update(inputs=data(seed=3)[0])
    assert (found.coverage.inputs, back.coverage.inputs) == (60, 120)


def test_hooks_are_gone_after_an_exception():
    model = network()
    found = metric(model)
    for call in (found.update, found.forward):
        with pytest.raises(RuntimeError):
            call(inputs=torch.ones(3, 5))
    with pytest.raises(RuntimeError), found.listen():
        model(torch.ones(3, 5))
    assert not hooks(model)
    assert found.coverage.inputs == 0


@pytest.mark.parametrize("options", [{"dist_sync_on_step": True}, {"dist_sync_fn": print}])
def test_what_cannot_be_kept_is_refused(options):
    with pytest.raises(InputError, match="not for coverage"):
        CoverageMetric(nc.Coverage(network(), [nc.NC(0.5)]), **options)
