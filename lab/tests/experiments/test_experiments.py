"""Every experiment from plan to report at the smallest size, by the command a user gives."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import neuralcov as nc
from neuralcov import criteria
from neuralcov.cli.app import app
from neuralcov.core.errors import InputError
from neuralcov_lab.experiments import PLANS, SCALES, JobFolder, jobs_of, run_jobs, tables
from neuralcov_lab.experiments.comparisons import ALONE, EQUAL, ON_TOP, comparisons
from neuralcov_lab.experiments.ranking import costs, planned_criteria, ranking
from neuralcov_lab.experiments.report import write_report
from neuralcov_lab.experiments.subjects import attacked, perturbed

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")


@pytest.fixture(scope="module")
def everything(tmp_path_factory, context):
    folder = JobFolder(tmp_path_factory.mktemp("reproduced"))
    outcome = run_jobs(jobs_of(["all"], context.scale), folder, context)
    return folder, outcome


def result(everything, name):
    content = everything[0].read(name)
    assert content["status"] == "done", content.get("reason")
    return content["result"]


@pytest.mark.smoke
def test_all_jobs_are_computed(everything):
    folder, outcome = everything
    assert outcome.failed == {}
    assert outcome.not_run == {}
    assert {name for job in folder.plan()[1].values() for name in job["experiments"]} == set(PLANS)


def test_suites_have_their_sizes(everything, tiny):
    assert result(everything, "test.digits")["suites"]["test"][-1]["inputs"] == tiny.test
    copies = result(everything, "diversity-image.digits.normalised-0.1")["suites"]
    assert {name: readings[-1]["inputs"] for name, readings in copies.items()} == {"x1": 120, "x2": 240}
    reviews = result(everything, "diversity-text.shuffled")["suites"]
    assert {name: readings[-1]["inputs"] for name, readings in reviews.items()} == {"x1": 60, "x2": 120}
    schemes = result(everything, "diversity-generative.schemes")["suites"]
    assert [readings[-1]["inputs"] for readings in schemes.values()] == [60, 30, 10, 30, 6]
    assert result(everything, "faults.digits.PGD")["suites"]["PGD"][-1]["inputs"] == tiny.attacked
    assert result(everything, "perturbations.digits.PGD")["suites"]["AP PGD"][-1]["inputs"] == tiny.perturbed
    draws = result(everything, "diversity-image.digits.equal")["draws"]
    assert draws["one class"]["inputs"] == draws["test, as many as one class"]["inputs"]
    assert draws["five classes"]["inputs"] == draws["test, as many as five classes"]["inputs"]
    assert len(draws["test"]["values"]) == tiny.draws
    assert draws["perturbed"]["inputs"] == draws["test, as many as perturbed"]["inputs"]
    for suite in ("noisy copies, pixel", "noisy copies, normalised", "perturbed", "PGD", "test"):
        first, second = (values["LVC"] for values in draws[suite]["values"][:2])
        assert first != second, f"{suite}: every draw is the same"


def test_attacks_on_training_and_test_inputs_succeed(everything):
    for name in ("faults.digits.PGD", "faults-test.digits.PGD", "faults.digits.PGD.run1"):
        assert result(everything, name)["attack"]["success"] >= 0.98


def test_other_runs_attack_other_inputs_and_fuzz_from_other_seeds(everything, context):
    runs = [attacked(context, "digits", "train", "PGD", run=run).samples for run in range(2)]
    assert not torch.equal(runs[0].labels, runs[1].labels)
    runs = [perturbed(context, "digits", "PGD", run=run) for run in range(2)]
    assert not torch.equal(runs[0].labels, runs[1].labels)
    for name in ("faults.digits.PGD", "perturbations.digits.PGD", "perturbations.digits.CW", "fuzz.digits.NLC"):
        assert result(everything, name) != result(everything, f"{name}.run1"), name
    assert everything[0].read("faults.digits.CW.run1") is None


def test_criteria_that_promise_it_do_not_move_with_order(everything):
    free = result(everything, "order.digits.free")["values"]
    for name, by_size in free.items():
        values = [value for runs in by_size.values() for value in runs]
        assert max(values) == pytest.approx(min(values), rel=1e-6), name
    dependent = result(everything, "order.digits.dependent")["values"]
    assert set(dependent) == {"CC(10)", "CC(20)", "CC(50)", "NLC"}
    assert len(dependent["NLC"]["30"]) == 2


def test_every_criterion_is_timed_and_fuzzed_with(everything):
    names = [name for name in everything[0].plan()[1] if name.startswith("time.")]
    assert len(names) == 17
    assert all(result(everything, name)["seconds"]["20"][0] > 0 for name in names)
    campaign = result(everything, "fuzz.digits.NLC")
    assert 0 < campaign["outputs"] <= campaign["iterations"]
    assert len(campaign["pictures"][0]) == 1
    assert result(everything, "fuzz.digits.random")["outputs"] == 20


def test_path_coverage_takes_part_where_its_cost_allows(everything, tiny):
    suites = result(everything, "diversity-image.digits.paths")["suites"]
    assert {name: readings[-1]["inputs"] for name, readings in suites.items()} == {
        "test": tiny.path_inputs,
        "x1 normalised 0.1": tiny.path_inputs,
        "x1 pixel 0.1": tiny.path_inputs,
        "PGD": tiny.attacked,
        "PGD test": tiny.attacked,
        "AP PGD": tiny.perturbed,
    }
    judged = [c for c in comparisons(everything[0]) if "NPC(0.7)" in c.runs]
    for basis in (ON_TOP, ALONE):
        parts = {(c.experiment, c.label): c.suites for c in judged if c.basis == basis}
        assert parts == {
            ("diversity-image", "noise ±0.1, normalised units, x1 only"): ("test", "x1"),
            ("diversity-image", "noise ±0.1, pixel units, x1 only"): ("test", "x1"),
            ("faults", "PGD"): ("PGD", "test"),
            ("faults-test", "PGD"): ("PGD", "test"),
            ("perturbations", "PGD"): ("test", "AP PGD", "nothing"),
        }
    equal = [c for c in judged if c.basis == EQUAL]
    assert len(equal) == 6
    assert all(len(c.runs["NPC(0.7)"]) == tiny.draws for c in equal)
    again = result(everything, "diversity-image.digits.paths.run1")["suites"]
    for suite in ("x1 normalised 0.1", "PGD", "AP PGD"):
        assert again[suite] != suites[suite]
    assert again["test"] == suites["test"]
    on_test = next(c for c in judged if (c.experiment, c.basis) == ("faults-test", ALONE))
    expected = [[run[suite][-1]["own"]["NPC(0.7)"] for suite in ("PGD test", "test")] for run in (suites, again)]
    assert on_test.runs["NPC(0.7)"] == expected


def test_density_is_felt_by_criteria_on_distributions(everything):
    responses = result(everything, "figures.density")["responses"]
    assert responses["outliers"]["NLC"] > responses["points in the mass"]["NLC"] == 0
    # Within the range of each neuron, which is all that these two look at.
    assert responses["outliers"]["NBC"] == responses["outliers"]["SNAC"] == 0
    assert responses["a new cluster"]["NBC"] == responses["a new cluster"]["SNAC"] == 0
    assert responses["outliers"]["CC(1)"] > 0
    assert responses["a new cluster"]["LVC"] > 0 > responses["points in the mass"]["LVC"]


def test_orders_of_all_experiments_are_judged(everything):
    found = comparisons(everything[0])
    kinds = {(comparison.experiment, comparison.basis) for comparison in found}
    for name in ("diversity-image", "diversity-text", "faults", "faults-test", "perturbations"):
        assert {(name, ON_TOP), (name, ALONE)} <= kinds
    assert {("diversity-generative", ALONE), ("diversity-image", EQUAL)} <= kinds
    noise = next(
        c for c in found if c.label == "noise ±0.1, normalised units" and c.basis == ON_TOP and "NC(0.75)" in c.runs
    )
    assert noise.suites == ("test", "x2", "x1")
    assert len(noise.runs["NLC"]) == 2
    attacks = {
        (c.experiment, c.label): len(c.runs["NLC"]) for c in found if c.label in ("PGD", "CW") and "NLC" in c.runs
    }
    for experiment in ("faults", "faults-test", "perturbations"):
        assert attacks[experiment, "PGD"] == 2
        assert attacks[experiment, "CW"] == (2 if experiment == "perturbations" else 1)


def test_report_writes_pages_json_and_plots(everything):
    folder, _ = everything
    written = {path.name for path in write_report(folder)}
    assert {
        "ranking.md",
        "results.json",
        "diversity-image.md",
        "faults.md",
        "time.md",
        "order.md",
        "fuzz.md",
    } <= written
    assert {"ranking.png", "noise.png", "density.png", "two-neurons.png", "perturbations.png"} <= written
    content = json.loads((folder.path / "results.json").read_text())
    assert len(content["ranking"]) == 16
    page = (folder.path / "ranking.md").read_text()
    assert "All planned jobs are done." in page
    assert "| NLC |" in page
    assert all(path.stat().st_size > 0 for path in folder.path.glob("plots/*.png"))
    campaigns = [
        line.split(" | ") for line in (folder.path / "fuzz.md").read_text().splitlines() if "| random |" in line
    ]
    assert len(campaigns) == 1
    assert campaigns[0][3] == "2"
    assert " ± " in campaigns[0][2]
    assert "faults.digits.PGD 100.00%" in (folder.path / "faults.md").read_text()


@pytest.mark.parametrize(
    ("folder", "pages"),
    [(".", 12), ("small", 11), ("fuzz-cpu", 1), ("fuzz-full", 2), ("fuzz-digits", 3), ("text-earlier", 1)],
)
def test_committed_results_are_what_their_jobs_say(tmp_path, folder, pages):
    """Every page is as its jobs have it; pages that only say that nothing was judged are not kept."""
    committed = Path(__file__).parents[2] / "results" / folder
    for name in ("cells", "plan.json", "small"):
        if (committed / name).exists():
            (tmp_path / name).symlink_to(committed / name)
    written = [path for path in write_report(JobFolder(tmp_path)) if (committed / path.name).is_file()]
    assert len([path for path in written if path.suffix == ".md"]) == pages
    for path in written:
        text = path.read_text()
        assert text == (committed / path.name).read_text(), path.name
        if path.suffix == ".md":
            title, lead, *_ = text.split("\n\n")
            assert title.startswith("# ")
            assert not lead.startswith(("Scale", "|", "<"))
            tables = re.findall(r"(?:^\|.*\n)+", re.sub(r"<details>.*?</details>", "", text, flags=re.S), re.M)
            assert max((table.count("\n") for table in tables), default=0) <= 22, path.name


def test_a_new_criterion_of_the_library_changes_neither_plan_nor_page(monkeypatch):
    committed = JobFolder(Path(__file__).parents[2] / "results")

    def page_and_plan():
        standings = ranking(comparisons(committed), costs(committed), planned_criteria(committed))
        jobs = [(job.name, job.description()) for scale in SCALES.values() for job in jobs_of(["all"], scale)]
        return tables.ranking_table(standings), tables.parts_table(standings), jobs

    before = page_and_plan()
    name = "Dummy"

    @dataclass(frozen=True, eq=False)
    class Dummy(nc.NC):
        """A criterion that some later version brings."""

    monkeypatch.setattr(criteria, "ALL", (*criteria.ALL, Dummy))
    monkeypatch.setattr(criteria, name, Dummy, raising=False)
    assert page_and_plan() == before
    assert before[0] in (committed.path / "ranking.md").read_text()


def test_reports_do_not_look_at_the_names_of_jobs(tmp_path):
    """Jobs under other names give the same comparisons, ranking and costs."""
    committed = JobFolder(Path(__file__).parents[2] / "results")
    plan = json.loads((committed.path / "plan.json").read_text())
    names = {name: f"job-{number}" for number, name in enumerate(plan["cells"])}
    (tmp_path / "cells").mkdir()
    for name, other in names.items():
        path = committed.path / "cells" / f"{name}.json"
        if path.is_file():
            (tmp_path / "cells" / f"{other}.json").symlink_to(path)
    plan["cells"] = {names[name]: job for name, job in plan["cells"].items()}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    renamed = JobFolder(tmp_path)
    assert comparisons(renamed) == comparisons(committed)
    assert costs(renamed) == costs(committed)
    assert planned_criteria(renamed) == planned_criteria(committed)
    first = committed.first_runs()
    assert renamed.first_runs() == {names[name]: names[first[name]] for name in names}
    assert first["faults.resnet50.PGD.run3"] == "faults.resnet50.PGD"


def test_report_lists_what_failed_and_what_was_not_run(everything, tmp_path):
    folder, _ = everything
    partial = JobFolder(tmp_path)
    (tmp_path / "plan.json").write_text((folder.path / "plan.json").read_text())
    (tmp_path / "cells").mkdir()
    for name in ("test.digits", "faults.digits.PGD"):
        (tmp_path / "cells" / f"{name}.json").write_text((folder.path / "cells" / f"{name}.json").read_text())
    failed = json.loads((tmp_path / "cells" / "test.digits.json").read_text()) | {
        "status": "failed",
        "reason": "RuntimeError: no power. Of the 12 V\nnone",
    }
    (tmp_path / "cells" / "order.digits.free.json").write_text(json.dumps(failed))
    elsewhere = json.loads((tmp_path / "cells" / "faults.digits.PGD.json").read_text())
    elsewhere["machine"]["device"] = "another device"
    (tmp_path / "cells" / "faults.digits.PGD.json").write_text(json.dumps(elsewhere))
    write_report(partial)
    page = (tmp_path / "ranking.md").read_text()
    assert "| order.digits.free | RuntimeError: no power |" in page
    assert "| faults.digits.CW |" in page
    assert "Not run" in page
    assert page.count(" (1 of the jobs)") == 2
    assert "another device, torch" in page


def test_unknown_experiment_is_refused(tiny):
    with pytest.raises(InputError, match="no experiment 'magic'"):
        jobs_of(["magic"], tiny)


def test_full_scale_is_the_papers():
    full = SCALES["full"]
    assert full.networks == ("resnet50", "vgg16_bn", "mobilenet_v2")
    assert (full.training, full.test, full.noise_seeds, full.multiples) == (50_000, 10_000, 100, (1, 10))
    assert set(full.noises) == {0.05, 0.1, 0.2, 0.4}
    assert (full.generated, full.perturbed, full.time_inputs, full.fuzz_iterations) == (32_000, 1_000, 10_000, 10_000)
    names = {job.name for job in jobs_of(["all"], full)}
    assert {
        f"diversity-image.{n}.{u}-{z:g}" for n in full.networks for u in ("pixel", "normalised") for z in full.noises
    } <= names


def test_command_runs_keeps_and_reports(tmp_path):
    runner, folder = CliRunner(), str(tmp_path / "out")
    first = runner.invoke(app, ["reproduce", "figures", "--divide", "20", "--budget", "0", "-o", folder, "--no-report"])
    assert first.exit_code == 0, first.output
    assert "4 not run" in first.output
    report = runner.invoke(app, ["reproduce", "report", "-o", folder])
    assert report.exit_code == 0, report.output
    assert "ranking.md" in report.output.replace("\n", "")
    for arguments, said in (
        (["reproduce", "order", "--scale", "huge"], "expected smoke, small, full"),
        (["reproduce", "report", "order"], "stands alone"),
    ):
        result = runner.invoke(app, arguments)
        assert isinstance(result.exception, InputError)
        assert said in str(result.exception)
