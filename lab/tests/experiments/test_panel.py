"""A panel measures what plain coverages measure, in one pass."""

import pytest
import torch

import neuralcov as nc
from neuralcov.criteria import ALL
from neuralcov_lab.experiments.panel import Panel, slices
from neuralcov_lab.experiments.settings import fuzz_settings, single_settings, table_settings
from neuralcov_lab.experiments.subjects import PATH_ROWS, activations_of_test, calibrated, image_panel, image_subject

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


def settings():
    return [nc.NC(0.5), nc.KMNC(10), nc.KMNC(100), nc.LSC(1), nc.LSC(10), nc.DSC(0.1), nc.NLC(), nc.LVC()]


@pytest.fixture(scope="module")
def subject(bench):
    return image_subject(bench, "digits")


def test_increase_and_own_values_equal_those_of_plain_coverages(subject, bench):
    panel = Panel.calibrated(subject.model, settings(), subject.train.batches(40))
    (reading,) = panel.measure(subject.test.batches(40))
    for criterion in settings():
        coverage = nc.Coverage(subject.model, [criterion])
        coverage.calibrate(subject.train.batches(40))
        coverage.assess(subject.test.batches(40))
        assert reading["own"][criterion.name] == pytest.approx(coverage.values()[criterion.name], rel=1e-6)
        coverage.reset()
        coverage.assess(subject.train.batches(40))
        before = coverage.values()[criterion.name]
        assert panel.training_values[criterion.name] == pytest.approx(before, rel=1e-6)
        coverage.assess(subject.test.batches(40))
        grown = coverage.values()[criterion.name] - before
        assert reading["increase"][criterion.name] == pytest.approx(grown, rel=1e-5, abs=1e-9)


def test_measuring_leaves_the_training_state_alone(subject):
    panel = Panel.calibrated(subject.model, settings(), subject.train.batches(40))
    first, again = (panel.measure(subject.test.batches(40))[0] for _ in range(2))
    assert first["increase"] == again["increase"]


def test_settings_of_one_criterion_share_what_was_learnt(subject):
    panel = Panel.calibrated(subject.model, settings(), subject.train.batches(40))
    fitted = {criterion.name: criterion.fitted for criterion in panel.criteria}
    assert fitted["LSC(1)"] is fitted["LSC(10)"]
    assert fitted["KMNC(10)"] is fitted["KMNC(100)"]


@pytest.mark.parametrize("wanted", fuzz_settings(), ids=lambda criterion: criterion.name)
def test_one_criterion_learns_what_it_would_alone(subject, bench, wanted):
    found = calibrated(bench, "digits", wanted)
    assert found.name == wanted.name
    coverage = nc.Coverage(subject.model, [found])
    coverage.assess(subject.test.batches(40))
    alone = nc.Coverage(subject.model, [wanted])
    alone.calibrate(_learnt_from(bench, subject, wanted))
    alone.assess(subject.test.batches(40))
    assert coverage.values()[wanted.name] == pytest.approx(alone.values()[wanted.name], rel=1e-6)


def test_what_learns_nothing_is_not_taught(bench, monkeypatch):
    monkeypatch.setattr(bench, "prepare", None)
    wanted = nc.SS()
    assert calibrated(bench, "digits", wanted) is wanted


def _learnt_from(bench, subject, wanted):
    """NPC learns from a part of the training data, which the scale says."""
    if "relevance" not in wanted.needs:
        return subject.train.batches(40)
    rows = bench.rows(len(subject.train), bench.scale.path_training, PATH_ROWS)
    return subject.train.take(rows).batches(40)


def test_marks_are_read_on_the_way(subject):
    panel = Panel.calibrated(subject.model, [nc.NC(0.5)], subject.train.batches(40))
    readings = panel.measure(subject.test.batches(40), marks=(40, 80))
    assert [reading["inputs"] for reading in readings] == [40, 80, 120]


def test_parts_of_activations_are_the_same_inputs(bench):
    suite = activations_of_test(bench, "digits")
    again = nc.Activations.cat(list(slices(suite, 50)))
    assert again.size == suite.size == 120
    assert all(torch.equal(again.layers[name], suite.layers[name]) for name in suite.layers)
    assert torch.equal(again.predictions, suite.predictions)
    rows = torch.tensor([5, 3])
    (some,) = slices(suite, 10, rows)
    assert torch.equal(some.labels, suite.labels[rows])


def test_every_criterion_takes_part(bench):
    kinds = {type(criterion).__name__ for criterion in table_settings()}
    assert kinds | {"NPC"} == {cls.__name__ for cls in ALL}
    assert {type(criterion).__name__ for criterion in single_settings()} == {cls.__name__ for cls in ALL}
    assert set(image_panel(bench, "digits").names) == {criterion.name for criterion in table_settings()}


def test_chunks_stand_for_batches_of_their_size(subject):
    panel = Panel.calibrated(subject.model, [nc.NLC(), nc.NC(0.5)], subject.train.batches(60), chunk=20)
    coverage = nc.Coverage(subject.model, [nc.NLC()])
    coverage.assess(subject.train.batches(20))
    assert panel.training_values["NLC"] == pytest.approx(coverage.values()["NLC"], rel=1e-5)
    assert list(panel.training_values) == ["NLC", "NC(0.5)"]


def test_beyond_the_given_number_only_criteria_that_can_fall_go_on(subject):
    panel = Panel.calibrated(subject.model, [nc.NC(0.5), nc.NLC(rule="all"), nc.LVC()], subject.train.batches(60))
    few, many = panel.measure(subject.test.batches(40), marks=(40,), alone=40)
    assert set(few["own"]) == {"NC(0.5)", "NLC(rule=all)", "LVC"}
    assert set(many["own"]) == {"NLC(rule=all)", "LVC"}
    assert set(many["increase"]) == set(few["increase"])
    whole = panel.measure(subject.test.batches(40))[-1]
    assert many["own"]["LVC"] == pytest.approx(whole["own"]["LVC"])


def test_a_suite_of_exactly_the_given_number_is_followed_to_its_end(subject):
    panel = Panel.calibrated(subject.model, settings(), subject.train.batches(40))
    (reading,) = panel.measure(subject.test.batches(40), alone=len(subject.test))
    assert list(reading["own"]) == list(panel.names)
