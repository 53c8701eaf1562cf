"""Ray: campaigns that many workers search, and suites measured in shards; workers are killed, and the driver."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import neuralcov as nc
from neuralcov.fuzz.campaign.folder import CampaignFolder
from tests.distributed.ray_campaign import build
from tests.fuzz.test_resume import records, same_campaign

ray = pytest.importorskip("ray")

from neuralcov.distributed import RayCluster, RayWorkers  # noqa: E402
from neuralcov.integrations.ray import FuzzWorkers, measure  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
# A busy machine starts Ray's own processes slowly.
STARTING = {"RAY_raylet_start_wait_time_s": "300", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """One cluster for all tests, which those that would start one then join."""
    os.environ.update(STARTING)
    with RayCluster(processors=4):
        yield


def echo():
    def answer(message):
        if message["say"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if message["say"] == "fail":
            raise ValueError("no such word\nat all")
        return {"said": message["say"], "shared": message.get("shared")}

    return answer


def events(workers, count):
    return [workers.receive() for _ in range(count)]


def test_messages_reach_workers_that_come_and_go():
    with RayWorkers(echo, 2, num_cpus=0.5) as workers:
        joined = events(workers, 2)
        assert {(event.what, event.worker) for event in joined} == {("joined", 0), ("joined", 1)}
        assert workers.waiting() == [0, 1]
        assert len(workers) == 2
        workers.send(1, {"say": "x", "shared": [workers.share(b"content"), workers.share((1, 2))]})
        assert workers.waiting() == [0]
        event = workers.receive()
        assert (event.what, event.worker, event.answer) == (
            "answered",
            1,
            {"said": "x", "shared": [b"content", (1, 2)]},
        )
        workers.send(0, {"say": "die"})
        assert (workers.receive().what, len(workers)) == ("lost", 1)
        again = workers.receive()
        assert (again.what, again.worker) == ("joined", 2)
        workers.resize(3)
        assert workers.receive().what == "joined"
        assert workers.waiting() == [1, 2, 3]
        workers.resize(1)
        assert [event.what for event in events(workers, 2)] == ["lost", "lost"]
        assert len(workers) == 1
        workers.send(workers.waiting()[0], {"say": "fail"})
        with pytest.raises(nc.NeuralcovError, match=r"worker \d failed: ValueError: no such word$"):
            workers.receive()


def test_a_worker_for_which_there_is_no_room_is_waited_for_no_longer_than_asked():
    with (
        RayWorkers(echo, 1, num_cpus=1000, patience=1.5) as workers,
        pytest.raises(nc.NeuralcovError, match="no worker came"),
    ):
        workers.receive()


def test_one_worker_is_one_process(tmp_path):
    alone = build(tmp_path / "alone")().run(iterations=48)
    with FuzzWorkers(build(), num_cpus=0.5) as workers:
        campaign = build(tmp_path / "ray")().run(iterations=48, workers=workers)
    assert campaign.values == alone.values
    same_campaign(tmp_path / "alone", tmp_path / "ray")


def test_workers_that_are_killed_cost_their_waves(tmp_path):
    with FuzzWorkers(build(), 2, num_cpus=0.5) as workers:
        campaign = build(tmp_path / "ray")().run(iterations=32, workers=workers)
        assert campaign.iterations == 32
        for pid in workers.pids():
            os.kill(pid, signal.SIGKILL)
        # Both die as the campaign goes on; two others take over.
        go_on = build(tmp_path / "ray")().resume(iterations=96, workers=workers)
    assert go_on.exact
    assert go_on.iterations == 96
    assert [record.wave for record in records(tmp_path / "ray")] == list(range(go_on.stats.waves))


def test_a_killed_driver_goes_on_from_its_folder(tmp_path):
    """With coverage that has the same value as the log's mutants seen again from the start."""
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.distributed.ray_campaign", str(folder)]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(command, cwd=root, env={**os.environ, **STARTING})
    try:
        until = time.monotonic() + 240
        while not (folder / "queue.log").is_file() or len(list(CampaignFolder(folder).log.read())) < 6:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()  # and with it, those that Ray started
    done = len(records(folder))
    alone = build(folder)().resume(calls=1 << 30, seconds=0)
    assert alone.exact
    assert alone.stats.waves == done >= 6
    started = alone.state.counts.started
    with FuzzWorkers(build(), 2, num_cpus=0.5) as workers:
        campaign = build(folder)().resume(iterations=started + 32, workers=workers)
    assert campaign.iterations == started + 32
    fresh = build()()
    with fresh.coverage.tap():
        fresh._setup.survey(observe=True)
        for record in records(folder):
            _, inputs = record.observed_inputs()
            if len(inputs):
                fresh.coverage.propose(torch.from_numpy(inputs)).commit()
    assert fresh.coverage.values() == campaign.values


def shards(net, data, criteria):
    def shard(number, count):
        coverage = nc.Coverage(net, criteria)
        coverage.assess([data[start : start + 8] for start in range(8 * number, len(data), 8 * count)], progress=False)
        return coverage

    return shard


@pytest.mark.parametrize("count", [1, 3])
def test_shards_measured_on_ray_are_the_suite(count):
    torch.manual_seed(0)
    net, data = torch.nn.Linear(6, 9), torch.randn(60, 6)
    criteria = [nc.TKNC(2), nc.NC(0.3), nc.NLC(rule="all")]
    found = measure(shards(net, data, criteria), count, num_cpus=0.5)
    whole = nc.Coverage(net, criteria)
    whole.assess(data.split(8), progress=False)
    assert found.inputs == 60
    assert found.values() == pytest.approx(whole.values(), rel=1e-12)
    assert found.values()["TKNC(2)"] == whole.values()["TKNC(2)"]


def test_a_shard_whose_worker_dies_is_measured_again(tmp_path):
    torch.manual_seed(0)
    net, data = torch.nn.Linear(6, 9), torch.randn(40, 6)
    good = shards(net, data, [nc.TKNC(2)])

    def shard(number, count):
        mark = tmp_path / "died"
        if number == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return good(number, count)

    assert measure(shard, 2, num_cpus=0.5).inputs == 40
    assert (tmp_path / "died").exists()


def test_a_shard_that_fails_says_why():
    def shard(number, count):
        raise nc.NeuralcovError("no such data")

    with pytest.raises(nc.NeuralcovError, match="a task failed: no such data"):
        measure(shard, 2, num_cpus=0.5)
