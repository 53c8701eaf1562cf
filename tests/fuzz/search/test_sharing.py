"""Campaigns that many workers search: one worker is one process, more of them share corpus and coverage."""

import shutil
from collections import deque

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.errors import CampaignError, MismatchError, RankError
from neuralcov.distributed import Event
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.reader import open_campaign
from tests.fuzz.support import fuzzer_of
from tests.fuzz.test_resume import records, same_campaign

pytestmark = pytest.mark.filterwarnings("ignore::neuralcov.CoverageWarning")
CRITERIA = {"coverage": [nc.LCC(), nc.KMNC(20)], "margin+coverage": [nc.NC(0.5)], "margin": [nc.NC(0.5)]}


class LocalWorkers:
    """Workers in this process; answers come in the order of messages, and some workers are lost.

    Args:
        build: gives a fuzzer.
        count: how many there are at first.
        lost: after how many messages in all a worker is lost with the one it has, and another joins.
        later: after how many messages a further worker joins.
    """

    def __init__(self, build, count, lost=(), later=()):
        self._build, self._lost, self._later = build, set(lost), set(later)
        self._workers, self._events, self._busy, self.sent, self._next = {}, deque(), set(), 0, 0
        for _ in range(count):
            self._join()

    def _join(self):
        self._workers[self._next] = self._build().worker()
        self._events.append(Event("joined", self._next))
        self._next += 1

    def __len__(self):
        return len(self._workers)

    def waiting(self):
        joining = {event.worker for event in self._events if event.what == "joined"}
        return sorted(self._workers.keys() - self._busy - joining)

    def share(self, content):
        return content

    def send(self, worker, message):
        assert worker in self._workers
        assert worker not in self._busy
        self.sent += 1
        self._busy.add(worker)
        if self.sent in self._lost:
            del self._workers[worker]
            self._events.append(Event("lost", worker))
            self._join()
            return
        self._events.append(Event("answered", worker, self._workers[worker].answer(message)))
        if self.sent in self._later:
            self._join()

    def receive(self):
        event = self._events.popleft()
        self._busy.discard(event.worker)
        return event


@pytest.fixture
def build(net, digits, tmp_path):
    """Make fuzzers alike."""

    def make(folder=None, guide="coverage", **settings):
        criteria = CRITERIA[guide] if "criteria" not in settings else settings.pop("criteria")
        place = None if folder is None else tmp_path / folder
        return fuzzer_of(net, digits, criteria, folder=place, guide=guide, **{"wave": 16, **settings})

    return make


@pytest.mark.parametrize("guide", CRITERIA)
def test_one_worker_is_one_process(build, tmp_path, guide):
    alone = build("alone", guide).run(iterations=60)
    with_worker = build("worker", guide).run(iterations=60, workers=LocalWorkers(lambda: build(guide=guide), 1))
    assert alone.values == with_worker.values
    assert torch.equal(alone.inputs, with_worker.inputs)
    first, second = records(tmp_path / "alone"), records(tmp_path / "worker")
    assert [record.base for record in second] == list(range(len(first)))
    for mine, theirs in zip(first, second, strict=True):
        assert mine.same_as(theirs)
    if guide != "margin":
        same_campaign(tmp_path / "alone", tmp_path / "worker")


@pytest.mark.parametrize("guide", CRITERIA)
def test_many_workers_share_corpus_and_coverage(build, tmp_path, guide):
    """What coverage says at the end is what the mutants that it observed say, one after another."""
    workers = LocalWorkers(lambda: build(guide=guide), 3)
    campaign = build("many", guide).run(iterations=120, workers=workers)
    assert campaign.iterations == 120
    found = records(tmp_path / "many")
    assert {record.candidates["lane"][0] // 16 for record in found} == {0, 1, 2}
    assert any(record.follows_others for record in found)
    # A worker knows all waves but those of the two others that were under way with its own.
    assert all(record.wave - record.base <= 2 for record in found)
    # No two of them drew the same: each has random numbers of its own.
    drawn = [tuple(record.candidates["parent"]) + tuple(record.candidates["setting"]) for record in found]
    assert len(set(drawn)) == len(drawn)
    assert len(np.unique(campaign.inputs.flatten(1), axis=0)) > 0.9 * len(campaign.inputs)
    if guide == "margin":
        return
    fresh = build(guide=guide)
    state = open_campaign(tmp_path / "many").state
    with fresh.coverage.tap():
        fresh._setup.survey(observe=True)
        for record in found:
            rows, inputs = record.observed_inputs()
            if len(rows):
                roots = state.corpus.entries["root"][record.candidates["parent"][rows]].astype(np.int64)
                # Every one was admitted on what all had shown until then.
                decoded = fresh.input_format.decode(torch.from_numpy(inputs))
                assert fresh.coverage.admit(decoded, fresh._setup.labels[roots]).all()
    assert fresh.coverage.values() == pytest.approx(campaign.values, rel=1e-12)


@pytest.mark.parametrize("guide", CRITERIA)
def test_a_worker_that_is_lost_costs_its_wave(build, tmp_path, guide):
    workers = LocalWorkers(lambda: build(guide=guide), 2, lost=(3, 4, 9), later=(6,))
    campaign = build("many", guide).run(iterations=100, workers=workers)
    assert campaign.iterations == 100
    assert 0 <= workers.sent - campaign.stats.waves - 3 < 4  # lost ones, and those under way at the end
    assert [record.wave for record in records(tmp_path / "many")] == list(range(campaign.stats.waves))


def test_workers_that_are_all_lost_end_the_run(build, tmp_path):
    with pytest.raises(RankError, match="lost, one after the other, with no wave done"):
        build("many").run(iterations=100, workers=LocalWorkers(build, 2, lost=range(1, 1000)))
    # And one process goes on from there.
    assert build("many").resume().iterations == 100


@pytest.mark.parametrize("guide", CRITERIA)
@pytest.mark.parametrize("left", [0, 3, 7])
def test_a_killed_driver_goes_on_from_the_folder(build, tmp_path, guide, left):
    """From the coverage at the start and some waves of the log: alone, and with workers."""
    build("many", guide, checkpoint=1e9).run(calls=250, workers=LocalWorkers(lambda: build(guide=guide), 3))
    whole = records(tmp_path / "many")
    assert len(whole) > 7
    values = {}
    for place, crew in (("alone", None), ("crew", 2)):
        start = tmp_path / place
        shutil.copytree(tmp_path / "many", start)
        packs = list(CampaignFolder(start).log.read())[:left]
        (start / "queue.log").write_bytes(b"")
        for pack in packs:
            CampaignFolder(start).log.append(pack)
        if guide != "margin":
            for path in (start / "coverage").glob("*.ncov"):
                path.unlink()
            fresh = build(guide=guide)
            with fresh.coverage.tap():
                fresh._setup.survey(observe=True)
            CampaignFolder(start).save_coverage(fresh.coverage, 0)
        fuzzer = build(place, guide)
        workers = None if crew is None else LocalWorkers(lambda: build(guide=guide), crew)
        campaign = fuzzer.resume(iterations=150, workers=workers)
        assert campaign.exact
        assert campaign.iterations == 150
        for record, before in zip(records(start), whole[:left], strict=False):
            assert record.same_as(before)
        values[place] = campaign.values
        if guide != "margin":
            # Seen again from the log alone, coverage is the same.
            again = build(place, guide)
            for path in (start / "coverage").glob("*.ncov"):
                path.unlink()
            CampaignFolder(start).save_coverage(fresh.coverage, 0)
            assert again.resume(iterations=150).values == pytest.approx(campaign.values, rel=1e-12)


def test_other_settings_and_weights_are_refused_by_workers(build, net):
    with pytest.raises(MismatchError, match="tries"):
        build("many").run(iterations=20, workers=LocalWorkers(lambda: build(tries=3), 1))


def test_workers_need_a_folder(build):
    with pytest.raises(CampaignError, match="workers= needs folder="):
        build().run(iterations=20, workers=LocalWorkers(build, 1))
