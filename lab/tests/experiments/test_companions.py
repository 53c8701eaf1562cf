"""Companions measure later criteria on the very suites of the jobs they stand beside, and reports join the two."""

from dataclasses import replace

import pytest

from neuralcov_lab.experiments import ExperimentContext, JobFolder, jobs_of, run_jobs
from neuralcov_lab.experiments.companions import checks, joined, strangers
from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, ON_TOP, comparisons
from neuralcov_lab.experiments.jobs import JobResult
from neuralcov_lab.experiments.measuring import CalibratedCriteria
from neuralcov_lab.experiments.settings import later_settings
from neuralcov_lab.experiments.subjects import image_subject

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
EXPERIMENTS = (
    "diversity-image",
    "diversity-text",
    "diversity-generative",
    "faults",
    "faults-test",
    "perturbations",
    "order",
)
LCC = ("LCC", "LCC(over=mean)", "LCC(over=trimmed)")


@pytest.fixture(scope="module")
def tried(tiny):
    """A context of its own for the jobs, and another for companions, as two processes on two days have."""
    return replace(tiny, cw_inputs=10, cw_steps=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tried):
    made = JobFolder(tmp_path_factory.mktemp("companions"))
    jobs = [job for job in jobs_of(EXPERIMENTS, tried) if "paths" not in job.name and "dependent" not in job.name]
    for companions in (False, True):
        some = [job for job in jobs if job.name.endswith(".lcc") == companions]
        # Of the repetitions some are left for another day.
        some = [job for job in some if not (companions and job.name.endswith("pixel-0.1.run1.lcc"))]
        outcome = run_jobs(some, made, ExperimentContext(tried))
        assert outcome.failed == {}
    return made


def test_every_suite_has_a_companion_and_nothing_else_has(tiny):
    names = {job.name for job in jobs_of(["all"], tiny)}
    alone = {name for name in names if not name.endswith(".lcc") and f"{name}.lcc" not in names}
    assert {name.removesuffix(".lcc") for name in names if name.endswith(".lcc")} <= names
    assert {name.partition(".")[0] for name in alone} == {
        "diversity-image",
        "order",
        "fuzz",
        "time",
        "figures",
        "lcc",
        "select",
        "fuzz-guides",
        "fuzz-rules",
        "fuzz-retraining",
    }
    assert {name for name in alone if name.startswith(("diversity-image", "order"))} == {
        "diversity-image.digits.paper-batches",
        "diversity-image.digits.paths",
        "diversity-image.digits.paths.run1",
        "order.digits.dependent",
    }


def test_suites_are_the_same_ones(folder):
    found = {check.experiment: check for check in checks(folder.results())}
    assert set(found) == set(EXPERIMENTS)
    assert all(check.equal == check.values > 0 for check in found.values()), found


def test_another_suite_is_noticed(folder):
    results = list(folder.results())
    index = next(i for i, job in enumerate(results) if job.name == "faults.digits.PGD.lcc")
    results[index] = _with_snac(results[index], "PGD", 2.0)
    found = {check.experiment: check for check in checks(results)}
    assert found["faults"].equal == found["faults"].values - 1
    assert found["faults"].gap > 0.5
    assert found["perturbations"].gap == 0


def test_values_are_those_of_each_criterion_alone(folder, context):
    subject = image_subject(context, "digits")
    before = folder.read("test.digits")["result"]["suites"]["test"][-1]
    job = next(job for job in joined(folder.results()) if job.name == "test.digits")
    joint = job.result["suites"]["test"][-1]
    for criterion in later_settings():
        alone = CalibratedCriteria.learn(subject.model, [criterion], subject.train.batches(context.scale.batch))
        (reading,) = alone.measure(subject.test.batches(context.scale.batch))
        assert joint["own"][criterion.name] == pytest.approx(reading["own"][criterion.name])
        assert joint["increase"][criterion.name] == pytest.approx(reading["increase"][criterion.name])
        if criterion.name == "LCC":
            assert joint["beside"]["LCC"]["relative"] == pytest.approx(reading["beside"]["LCC"]["relative"])
    assert joint["own"]["LCC"] != joint["own"]["LCC(over=mean)"]
    assert {name: value for name, value in joint["own"].items() if name not in LCC} == before["own"]


def test_later_criteria_are_judged_beside_the_others(folder):
    found = comparisons(folder)
    judged = {(c.experiment, c.basis) for c in found if set(LCC) <= set(c.runs)}
    assert judged == {
        ("diversity-generative", ALONE),
        ("diversity-image", EQUAL),
        *(
            (name, basis)
            for name in ("diversity-image", "diversity-text", "faults", "faults-test", "perturbations")
            for basis in (ON_TOP, ALONE)
        ),
    }
    runs = {c.label: {name: len(c.runs[name]) for name in ("SNAC", "LCC")} for c in found if "LCC" in c.runs}
    assert runs["noise ±0.1, normalised units"] == {"SNAC": 2, "LCC": 2}
    assert runs["noise ±0.1, pixel units"] == {"SNAC": 2, "LCC": 1}


def test_order_and_training_are_joined(folder):
    found = {job.name: job.result for job in joined(folder.results())}
    assert set(LCC) < set(found["order.digits.free"]["values"])
    assert set(LCC) < set(found["test.digits"]["training"]["values"])
    assert not any(name.endswith(".lcc") for name in found)


def test_companions_on_another_network_stand_alone(folder):
    results = list(folder.results())
    assert strangers(results) == []
    for index, job in enumerate(results):
        if job.name == "diversity-text.test.lcc":
            result = {**job.result, "accuracy": job.result["accuracy"] + 0.01}
            results[index] = JobResult(job.name, {**job.content, "result": result})
    apart = strangers(results)
    assert {job.name for job in apart} == {
        "diversity-text.test.lcc",
        "diversity-text.shuffled.lcc",
        "diversity-text.shuffled.run1.lcc",
    }
    assert all("SNAC" not in job.result["suites"][suite][-1]["own"] for job in apart for suite in job.result["suites"])
    assert all("beside" not in job.parameters for job in apart)
    text = [job for job in joined(results) if job.belongs_to("diversity-text")]
    assert not any(
        "LCC" in reading["own"] for job in text for some in job.result["suites"].values() for reading in some
    )
    assert "diversity-text" not in {check.experiment for check in checks(results)}


def test_a_generator_is_known_by_its_values(folder):
    results = list(folder.results())
    index = next(i for i, job in enumerate(results) if job.name == "diversity-generative.schemes.lcc")
    (reading,) = results[index].result["suites"]["N/2"]
    other = {**reading, "own": {**reading["own"], "SNAC": reading["own"]["SNAC"] * 1.02 + 0.01}}
    suites = {**results[index].result["suites"], "N/2": [other]}
    results[index] = JobResult(
        results[index].name, {**results[index].content, "result": {**results[index].result, "suites": suites}}
    )
    names = {job.name for job in strangers(results)}
    assert names == {"diversity-generative.schemes.lcc", "diversity-generative.schemes.run1.lcc"}


def test_a_network_trained_again_is_another_subject(folder, tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "plan.json").write_text((folder.path / "plan.json").read_text())
    for path in (folder.path / "cells").glob("diversity-text*.json"):
        content = path.read_text()
        if path.name == "diversity-text.test.lcc.json":
            content = content.replace('"accuracy": ', '"accuracy": 1')
        (tmp_path / "cells" / path.name).write_text(content)
    found = comparisons(JobFolder(tmp_path))
    by_subject = {c.subject: set(c.runs) for c in found if c.basis == ON_TOP}
    assert set(by_subject) == {"lstm", "lstm, trained again"}
    assert "LCC" not in by_subject["lstm"]
    assert by_subject["lstm, trained again"] == set(LCC)


def _with_snac(job, suite, factor):
    """The job with another value of SNAC on its own."""
    (reading,) = job.result["suites"][suite]
    own = {**reading["own"], "SNAC": factor * reading["own"]["SNAC"] + 0.1}
    result = {**job.result, "suites": {suite: [{**reading, "own": own}]}}
    return JobResult(job.name, {**job.content, "result": result})
