"""Jobs are computed once, survive interruption, and are shown as failed or not run where they were."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from neuralcov.cli.app import app
from neuralcov.core.errors import InputError
from neuralcov_lab.experiments import ExperimentContext, JobFolder, run_jobs
from neuralcov_lab.experiments.jobs import Job, estimate


@pytest.fixture
def folder(tmp_path):
    return JobFolder(tmp_path / "out")


class Counting:
    """Stands for an experiment: counts its calls."""

    def __init__(self, fails=False):
        self.calls, self.fails = [], fails

    def __call__(self, context, number):
        self.calls.append(number)
        if self.fails:
            raise InputError(f"number {number} does not work")
        return {"number": number}


def jobs(compute, count=3, work=10.0):
    return [Job(f"job.{i}", ("test",), compute, {"number": i}, work, rank=-i, kind="k") for i in range(count)]


def test_lowest_rank_first_and_finished_ones_once(folder, tiny):
    compute = Counting()
    outcome = run_jobs(jobs(compute), folder, ExperimentContext(tiny))
    assert compute.calls == [2, 1, 0]
    again = run_jobs(jobs(compute), folder, ExperimentContext(tiny))
    assert compute.calls == [2, 1, 0]
    assert sorted(again.kept) == sorted(outcome.computed) == ["job.0", "job.1", "job.2"]
    content = folder.read("job.1")
    assert content["status"] == "done"
    assert content["result"] == {"number": 1}
    assert content["machine"]["torch"]
    assert content["seed"] == 0


def test_other_parameters_are_computed_anew(folder, tiny):
    compute = Counting()
    run_jobs(jobs(compute, 1), folder, ExperimentContext(tiny))
    changed = [replace(jobs(compute, 1)[0], parameters={"number": 7})]
    run_jobs(changed, folder, ExperimentContext(tiny))
    assert compute.calls == [0, 7]


def test_failure_is_kept_with_its_reason_and_tried_again(folder, tiny):
    broken = Counting(fails=True)
    outcome = run_jobs(jobs(broken, 1), folder, ExperimentContext(tiny))
    assert outcome.failed == {"job.0": "number 0 does not work"}
    assert folder.read("job.0")["status"] == "failed"
    assert list(folder.results()) == []
    run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny))
    assert folder.read("job.0")["status"] == "done"


def test_a_bug_costs_one_job_only(folder, tiny):
    def bug(context, number):
        return {"number": 1 // number}

    outcome = run_jobs(jobs(bug, 2), folder, ExperimentContext(tiny))
    assert outcome.computed == ["job.1"]
    assert "ZeroDivisionError" in outcome.failed["job.0"]
    assert "line" in folder.read("job.0")["traceback"]


def test_what_jobs_share_is_tried_again_unless_the_user_has_to_put_it_right(folder, tiny):
    attempts = []

    def make(error):
        attempts.append(error)
        if len(attempts) == 1:
            raise error
        return "made"

    def sharing(context, number):
        return {"shared": context.once("shared", lambda: make(shortage))}

    for shortage, tries, done in ((MemoryError(), 2, ["job.0"]), (InputError("no data"), 1, [])):
        attempts.clear()
        place = JobFolder(folder.path / type(shortage).__name__)
        outcome = run_jobs(jobs(sharing, 2), place, ExperimentContext(tiny))
        assert len(attempts) == tries
        assert outcome.computed == done


def test_interruption_keeps_what_is_done(folder, tiny):
    def interrupted(context, number):
        if number == 0:
            raise KeyboardInterrupt
        return {"number": number}

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs(interrupted), folder, ExperimentContext(tiny))
    assert folder.read("job.1")["status"] == "done"
    assert folder.read("job.0") is None
    compute = Counting()
    run_jobs(jobs(compute), folder, ExperimentContext(tiny))
    assert compute.calls == [0]


def test_budget_leaves_out_what_does_not_fit(folder, tiny):
    compute = Counting()
    outcome = run_jobs(jobs(compute), folder, ExperimentContext(tiny), budget=0)
    assert compute.calls == []
    assert outcome.not_run == {"job.0": None, "job.1": None, "job.2": None}
    run_jobs(jobs(compute, 1), folder, ExperimentContext(tiny))
    large = [Job("large", ("test",), compute, {"number": 9}, 1e12, rank=0, kind="k")]
    path = folder.path / "cells" / "job.0.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 5.0}))
    outcome = run_jobs(large, folder, ExperimentContext(tiny), budget=60)
    assert outcome.not_run == {"large": pytest.approx(5.0 / 10 * 1e12)}
    assert estimate("job.2", folder) == pytest.approx(5.0)


def test_estimates_go_by_the_kinds_of_the_plan(folder, tiny):
    """Jobs may be told apart more finely than when some of them were computed."""
    compute = Counting()
    first, second, other = jobs(compute)
    run_jobs([first, other], folder, ExperimentContext(tiny))
    for name, seconds in (("job.0", 5.0), ("job.2", 500.0)):
        path = folder.path / "cells" / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": seconds}))
    folder.add_plan(tiny, [replace(job, kind="finer") for job in (first, second)])
    assert estimate("job.1", folder) == pytest.approx(5.0)


def test_another_seed_is_refused(folder, tiny):
    run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny))
    with pytest.raises(InputError, match="holds results of seed 0, not 3"):
        run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny, seed=3))


def test_a_pattern_without_jobs_leaves_no_plan(folder, tiny):
    with pytest.raises(InputError, match="no job matches zzz"):
        run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny), only=["zzz"])
    assert not (folder.path / "plan.json").exists()


def test_another_scale_is_refused(folder, tiny):
    run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny))
    with pytest.raises(InputError, match="another scale, training 300 and not 150"):
        run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny.smaller(2)))


def test_other_repetitions_and_batches_are_not_another_scale(folder, tiny):
    run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny))
    run_jobs(jobs(Counting(), 2), folder, ExperimentContext(replace(tiny, draws=9, batch=7)))
    assert folder.read("job.1")["status"] == "done"
    assert folder.plan()[0].draws == 9


def test_empty_folder_and_damaged_job_are_told(folder, tiny):
    with pytest.raises(InputError, match="holds no results"):
        folder.plan()
    run_jobs(jobs(Counting(), 1), folder, ExperimentContext(tiny))
    (folder.path / "cells" / "job.0.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        folder.read("job.0")


def test_what_failed_to_be_made_is_not_tried_again(tiny):
    context, tries = ExperimentContext(tiny), []

    def make():
        tries.append(1)
        raise InputError("cannot be made")

    for _ in range(2):
        with pytest.raises(InputError, match="cannot be made"):
            context.prepare("thing", make)
    assert len(tries) == 1


def test_smaller_scales_say_so(tiny):
    small = tiny.smaller(2)
    assert (small.test, small.divided, tiny.smaller(1)) == (60, 2, tiny)
    with pytest.raises(InputError, match="divide=0"):
        tiny.smaller(0)


def test_only_jobs_that_match_are_computed_and_all_are_planned(folder, tiny):
    compute = Counting()
    outcome = run_jobs(jobs(compute), folder, ExperimentContext(tiny), only=["*.1", "job.0*"])
    assert compute.calls == [1, 0]
    assert outcome.not_run == {}
    assert sorted(folder.plan()[1]) == ["job.0", "job.1", "job.2"]
    with pytest.raises(InputError, match=r"no job matches \*.vgg.*; there are job.0, job.1, job.2"):
        run_jobs(jobs(compute), folder, ExperimentContext(tiny), only=["*.vgg*"])


def _plan(path, scale, process):
    for number in range(100):
        job = Job(f"job.{process}.{number}", ("test",), Counting(), {}, 1.0, rank=0, kind="k")
        JobFolder(path).add_plan(scale, [job])


def test_processes_that_plan_at_the_same_time_lose_nothing(folder, tiny):
    started = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, started) as pool:
        for planned in [pool.submit(_plan, folder.path, tiny, process) for process in range(4)]:
            planned.result()
    assert len(folder.plan()[1]) == 400


def test_a_file_another_process_is_writing_is_left_alone(folder, tiny):
    (folder.path / "cells").mkdir(parents=True)
    foreign = folder.path / "cells" / "job.0.json.1-00000000.unfinished"
    foreign.write_text("half of it")
    run_jobs(jobs(Counting()), folder, ExperimentContext(tiny))
    assert foreign.read_text() == "half of it"
    assert len(list(folder.results())) == 3


def test_a_command_with_failed_jobs_says_so_by_its_exit_code(tmp_path, monkeypatch):
    broken, command = Counting(fails=True), ["reproduce", "time", "--no-report", "-o", str(tmp_path / "out")]
    monkeypatch.setattr("neuralcov_lab.commands.jobs_of", lambda names, sizes: jobs(Counting(), 2) + mended)
    mended = [replace(job, name="bad") for job in jobs(broken, 1)]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1, ended.output
    assert "2 jobs computed, 0 kept from before, 1 failed" in ended.output
    assert "number 0 does not work" in ended.output
    broken.fails = False
    assert CliRunner().invoke(app, command).exit_code == 0
