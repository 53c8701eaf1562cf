"""Calibrated criteria measure what plain coverages measure, in one pass."""

import pytest
import torch
from safetensors.torch import save_file

import neuralcov as nc
from neuralcov.criteria import ALL
from neuralcov_lab import zoo
from neuralcov_lab.experiments import ExperimentContext
from neuralcov_lab.experiments.measuring import CalibratedCriteria, ChunkedCollection, slices
from neuralcov_lab.experiments.settings import fuzz_settings, later_settings, single_settings, table_settings
from neuralcov_lab.experiments.subjects import PATH_ROWS, activations_of_test, calibrated, image_criteria, image_subject

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def settings():
    return [nc.NC(0.5), nc.KMNC(10), nc.KMNC(100), nc.LSC(1), nc.LSC(10), nc.DSC(0.1), nc.NLC(), nc.LVC()]


@pytest.fixture(scope="module")
def subject(context):
    return image_subject(context, "digits")


def test_increase_and_own_values_equal_those_of_plain_coverages(subject, context):
    criteria = CalibratedCriteria.learn(subject.model, settings(), subject.train.batches(40))
    (reading,) = criteria.measure(subject.test.batches(40))
    for criterion in settings():
        coverage = nc.Coverage(subject.model, [criterion])
        coverage.calibrate(subject.train.batches(40))
        coverage.assess(subject.test.batches(40))
        assert reading["own"][criterion.name] == pytest.approx(coverage.values()[criterion.name], rel=1e-6)
        coverage.reset()
        coverage.assess(subject.train.batches(40))
        before = coverage.values()[criterion.name]
        assert criteria.training_values[criterion.name] == pytest.approx(before, rel=1e-6)
        coverage.assess(subject.test.batches(40))
        grown = coverage.values()[criterion.name] - before
        assert reading["increase"][criterion.name] == pytest.approx(grown, rel=1e-5, abs=1e-9)


def test_measuring_leaves_the_training_state_alone(subject):
    criteria = CalibratedCriteria.learn(subject.model, settings(), subject.train.batches(40))
    first, again = (criteria.measure(subject.test.batches(40))[0] for _ in range(2))
    assert first["increase"] == again["increase"]


def test_settings_of_one_criterion_share_what_was_learnt(subject):
    criteria = CalibratedCriteria.learn(subject.model, settings(), subject.train.batches(40))
    fitted = {criterion.name: criterion.learnt for criterion in criteria.criteria}
    assert fitted["LSC(1)"] is fitted["LSC(10)"]
    assert fitted["KMNC(10)"] is fitted["KMNC(100)"]


@pytest.mark.parametrize("wanted", fuzz_settings(), ids=lambda criterion: criterion.name)
def test_one_criterion_learns_what_it_would_alone(subject, context, wanted):
    found = calibrated(context, "digits", wanted)
    assert found.name == wanted.name
    coverage = nc.Coverage(subject.model, [found])
    coverage.assess(subject.test.batches(40))
    alone = nc.Coverage(subject.model, [wanted])
    alone.calibrate(_learnt_from(context, subject, wanted))
    alone.assess(subject.test.batches(40))
    assert coverage.values()[wanted.name] == pytest.approx(alone.values()[wanted.name], rel=1e-6)


def test_what_learns_nothing_is_not_taught(context, monkeypatch):
    monkeypatch.setattr(context, "prepare", None)
    wanted = nc.SS()
    assert calibrated(context, "digits", wanted) is wanted


def _learnt_from(context, subject, wanted):
    """NPC learns from a part of the training data, which the scale says."""
    if "relevance" not in wanted.needs:
        return subject.train.batches(40)
    rows = context.rows(len(subject.train), context.scale.path_training, PATH_ROWS)
    return subject.train.take(rows).batches(40)


def test_marks_are_read_on_the_way(subject):
    criteria = CalibratedCriteria.learn(subject.model, [nc.NC(0.5)], subject.train.batches(40))
    readings = criteria.measure(subject.test.batches(40), marks=(40, 80))
    assert [reading["inputs"] for reading in readings] == [40, 80, 120]


def test_parts_of_activations_are_the_same_inputs(context):
    suite = activations_of_test(context, "digits")
    again = nc.Activations.cat(list(slices(suite, 50)))
    assert again.size == suite.size == 120
    assert all(torch.equal(again.layers[name], suite.layers[name]) for name in suite.layers)
    assert torch.equal(again.predictions, suite.predictions)
    rows = torch.tensor([5, 3])
    (some,) = slices(suite, 10, rows)
    assert torch.equal(some.labels, suite.labels[rows])


def test_every_criterion_takes_part(context):
    kinds = {type(criterion).__name__ for criterion in [*table_settings(), *later_settings()]}
    assert kinds | {"NPC"} == {cls.__name__ for cls in ALL}
    assert {type(criterion).__name__ for criterion in single_settings()} == {cls.__name__ for cls in ALL}
    assert set(image_criteria(context, "digits").names) == {criterion.name for criterion in table_settings()}


def test_chunks_stand_for_batches_of_their_size(subject):
    criteria = CalibratedCriteria.learn(subject.model, [nc.NLC(), nc.NC(0.5)], subject.train.batches(60), chunk=20)
    coverage = nc.Coverage(subject.model, [nc.NLC()])
    coverage.assess(subject.train.batches(20))
    assert criteria.training_values["NLC"] == pytest.approx(coverage.values()["NLC"], rel=1e-5)
    assert list(criteria.training_values) == ["NLC", "NC(0.5)"]


def test_beyond_the_given_number_only_criteria_that_can_fall_go_on(subject):
    criteria = CalibratedCriteria.learn(
        subject.model, [nc.NC(0.5), nc.NLC(rule="all"), nc.LVC()], subject.train.batches(60)
    )
    few, many = criteria.measure(subject.test.batches(40), marks=(40,), alone=40)
    assert set(few["own"]) == {"NC(0.5)", "NLC(rule=all)", "LVC"}
    assert set(many["own"]) == {"NLC(rule=all)", "LVC"}
    assert set(many["increase"]) == set(few["increase"])
    whole = criteria.measure(subject.test.batches(40))[-1]
    assert many["own"]["LVC"] == pytest.approx(whole["own"]["LVC"])


def test_a_suite_of_exactly_the_given_number_is_followed_to_its_end(subject):
    criteria = CalibratedCriteria.learn(subject.model, settings(), subject.train.batches(40))
    (reading,) = criteria.measure(subject.test.batches(40), alone=len(subject.test))
    assert list(reading["own"]) == list(criteria.names)


def batch(seed):
    return nc.Activations({"fc": torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))})


def test_going_on_with_some_criteria_leaves_the_state_it_started_from_alone():
    criteria = [nc.NC(0.5), nc.NLC(rule="all")]
    training = ChunkedCollection(criteria, batch(0).layout, None)
    training.observe(batch(0))
    start, before = training.states, training.values()
    other = ChunkedCollection(criteria, batch(0).layout, None)
    other.start_from(start)
    other.keep(lambda criterion: criterion.name == "NLC(rule=all)")
    other.observe(batch(1))
    assert list(other.values()) == ["NLC(rule=all)"]
    assert other.values()["NLC(rule=all)"] != before["NLC(rule=all)"]
    assert training.values() == before


def test_a_subject_may_be_a_network_and_a_data_set(context, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = zoo.build("mlp", **zoo.arguments_for("mlp", zoo.data("digits", "train")), hidden=128)
    save_file(model.state_dict(), tmp_path / "mlp-digits.safetensors")
    monkeypatch.setenv("NEURALCOV_WEIGHTS", str(tmp_path))
    found = image_subject(ExperimentContext(context.scale), "mlp-digits")
    assert (len(found.train), len(found.test)) == (context.scale.training, context.scale.test)
    pixels, _ = next(iter(found.test.batches(5)))
    assert torch.equal(found.model(pixels), model(pixels))
