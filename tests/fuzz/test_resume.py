"""Campaigns that are killed, stopped or broken off, and go on as if nothing had happened."""

import copy
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov import demo
from neuralcov.core.container import STATE, opened
from neuralcov.core.errors import CampaignError, MismatchError
from neuralcov.fuzz import Brightness, Contrast
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.log import WaveRecord
from neuralcov.fuzz.campaign.reader import open_campaign
from tests.fuzz.support import fuzzer_of

TORN = "bytes were no whole wave and were cut off"


def records(folder):
    return [WaveRecord.from_bytes(content) for content in CampaignFolder(folder).log.read()]


def state_in(path):
    """What a state file says, times aside; it lists the SHA-256 of every tensor."""
    with opened(path, STATE) as file:
        for run in file.header["inputs"]["runs"]:
            del run["from"], run["to"]
        return file.header


def same_campaign(one, other, *, covered=True):
    """Whether two folders hold the same to the bit, times aside; coverage too, where it took part."""
    first, second = records(one), records(other)
    assert len(first) == len(second)
    for mine, theirs in zip(first, second, strict=True):
        assert mine.same_as(theirs)
        assert mine.messages == theirs.messages
    states = []
    for folder in (one, other) if covered else ():
        wave, path = CampaignFolder(folder).latest_coverage()
        assert wave == len(first)
        states.append(state_in(path))
    assert states[:1] == states[1:]
    stories = [{path.name: path.read_bytes() for path in (folder / "faults").iterdir()} for folder in (one, other)]
    assert stories[0] == stories[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
def test_killed_at_random_moments(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz.killing", str(tmp_path), "12"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 4, "too few kills hit a running campaign"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    same_campaign(whole, killed)
    assert open_campaign(whole).state.counts.finished == 260
    assert any(record.messages for record in records(whole)), "no exception was among what had to survive"
    for line in (killed / "stats.jsonl").read_text().splitlines():
        assert json.loads(line)["iterations"] <= 260


@pytest.fixture
def finished(net, digits, tmp_path):
    """A campaign of 60 seeds that nobody stopped."""
    fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=tmp_path / "whole").run(iterations=60)
    return tmp_path / "whole"


def cut(finished, target, waves):
    """A copy as a kill leaves it: coverage from the start, some waves of the log, and a torn one."""
    shutil.copytree(finished, target)
    full = (finished / "queue.log").read_bytes()
    packs = [len(content) + 16 for content in CampaignFolder(finished).log.read()]
    (target / "queue.log").write_bytes(full[: sum(packs[:waves]) + 21])
    shutil.rmtree(target / "faults")
    (target / "faults").mkdir()
    return target


@pytest.mark.parametrize("waves", [0, 1, 3])
def test_waves_since_the_saved_coverage_are_repeated(net, digits, finished, tmp_path, waves):
    start = tmp_path / "start"
    fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=start).run(iterations=0)
    target = cut(finished, tmp_path / "cut", waves)
    shutil.rmtree(target / "coverage")
    shutil.copytree(start / "coverage", target / "coverage")
    with pytest.warns(nc.CoverageWarning, match=TORN):
        campaign = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=target).resume()
    assert campaign.exact
    same_campaign(finished, target)


def test_a_finished_campaign_tells_the_same_again_and_goes_further(net, digits, finished, tmp_path):
    before = json.loads((finished / "summary.json").read_text())
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished)
    campaign = fuzzer.resume()
    assert campaign.values == before["values"]
    assert campaign.stats.growth == pytest.approx(before["growth"])
    assert campaign.stats.kept == before["kept"]
    further = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=75)
    assert further.iterations == 75


def test_the_baseline_resumes_too(net, digits, tmp_path):
    settings = {"wave": 8, "guide": "random"}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = fuzzer_of(net, digits, [nc.NLC()], folder=whole, **settings).run(iterations=40)
    fuzzer_of(net, digits, [nc.NLC()], folder=parts, **settings).run(iterations=16)
    campaign = fuzzer_of(net, digits, [nc.NLC()], folder=parts, **settings).resume(iterations=40)
    assert torch.equal(campaign.inputs, expected.inputs)


def test_on_other_hardware_coverage_follows_the_log(net, digits, finished, tmp_path):
    """A log that says otherwise than this machine would: as told, and the campaign says that it is not exact."""
    target = cut(finished, tmp_path / "cut", 3)
    shutil.rmtree(target / "coverage")
    start = tmp_path / "start"
    fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=start).run(iterations=0)
    shutil.copytree(start / "coverage", target / "coverage")
    folder = CampaignFolder(target)
    folder.repair()
    told = records(target)
    folder.log.path.write_bytes(b"")
    for record in told:
        inputs = record.inputs.copy()
        inputs[0] = 16 - inputs[0]
        object.__setattr__(record, "inputs", inputs)
        folder.log.append(record.to_bytes())
    folder.log.close()
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=target)
    campaign = fuzzer.resume(iterations=60)
    assert not campaign.exact
    again = records(target)
    assert all(mine.same_as(theirs) for mine, theirs in zip(told, again, strict=False))
    plain = nc.Coverage(net, [nc.NLC()])
    plain.update(digits.inputs / 16)
    for image in campaign.inputs:
        plain.update(image[None] / 16)
    assert campaign.values["NLC"] == pytest.approx(plain.values()["NLC"])


def test_another_campaign_is_not_gone_on_with(net, digits, finished):
    def resume(**changes):
        criteria = changes.pop("criteria", [nc.NLC()])
        samples = changes.pop("digits", digits)
        return fuzzer_of(net, samples, criteria, **({"wave": 16, "folder": finished} | changes)).resume(iterations=61)

    with pytest.raises(MismatchError, match="the campaign there has wave 16, this one 8; give it what it had"):
        resume(wave=8)
    with pytest.raises(MismatchError, match=r"the campaign there has alpha 0\.2, this one 0\.3; give"):
        resume(alpha=0.3)
    with pytest.raises(MismatchError, match=r"has criteria \['NLC'\], this one \['NC\(0.5\)'\]"):
        resume(criteria=[nc.NC(0.5)])
    with pytest.raises(MismatchError, match="has mutations"):
        resume(mutations=[Contrast([0.5]), Brightness([9])])
    with pytest.raises(MismatchError, match="has seeds"):
        resume(digits=digits.take(torch.arange(60).flip(0)))
    with pytest.raises(CampaignError, match="holds a campaign already; resume it"):
        fuzzer_of(net, digits, [nc.NLC()], folder=finished).run(iterations=1)


def other_weights(net):
    """The same network after a step of training."""
    other = copy.deepcopy(net)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-3
    return other


def test_a_model_trained_anew_is_not_gone_on_with(net, digits, finished, tmp_path):
    other = other_weights(net)
    kept = (finished / "queue.log").read_bytes()
    with pytest.raises(MismatchError, match="ran on other weights of the model; give it those, or begin"):
        fuzzer_of(other, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=70)
    assert (finished / "queue.log").read_bytes() == kept
    # Whether a model has been mended is what a replay is for.
    assert fuzzer_of(other, digits, [nc.NLC()], wave=16, folder=finished).load()
    config = CampaignFolder(finished).config()
    del config["weights"]  # as in campaigns of earlier versions
    CampaignFolder(finished).write_json("config.json", config)
    assert fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=70).iterations == 70


def test_a_second_model_trained_anew_is_not_gone_on_with(net, digits, tmp_path):
    settings = {"wave": 16, "folder": tmp_path / "c"}
    fuzzer_of(net, digits, [nc.NLC()], against=copy.deepcopy(net), **settings).run(iterations=20)
    with pytest.raises(MismatchError, match="ran on other weights of the second model"):
        fuzzer_of(net, digits, [nc.NLC()], against=other_weights(net), **settings).resume(iterations=30)
    again = fuzzer_of(net, digits, [nc.NLC()], against=copy.deepcopy(net), **settings)
    assert again.resume(iterations=30).iterations == 30


def test_nothing_to_resume(net, digits, tmp_path):
    with pytest.raises(CampaignError, match="no campaign has begun here"):
        fuzzer_of(net, digits, [nc.NLC()], folder=tmp_path / "empty").resume()
    with pytest.raises(CampaignError, match="has no folder="):
        fuzzer_of(net, digits, [nc.NLC()]).resume()
    with pytest.raises(CampaignError, match="has not begun"):
        fuzzer_of(net, digits, [nc.NLC()]).replay([])


def test_a_stop_within_a_wave_loses_that_wave_only(net, digits, tmp_path):
    class Impatient(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.left = net, None

        def forward(self, images):
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise KeyboardInterrupt
            return self.net(images)

    model = Impatient()
    fuzzer = fuzzer_of(model, digits, [nc.NLC()], wave=16, folder=tmp_path / "campaign")
    fuzzer.run(iterations=16)
    model.left = 2
    with pytest.raises(KeyboardInterrupt):
        fuzzer.run(iterations=60)
    with pytest.raises(CampaignError, match="stopped within a wave: build a new Fuzzer and call resume"):
        fuzzer.run(iterations=60)
    model.left = None
    again = fuzzer_of(model, digits, [nc.NLC()], wave=16, folder=tmp_path / "campaign")
    assert again.resume(iterations=60).exact
    # A limit reached in between ends waves early, so that only the same limits give the same campaign.
    whole = fuzzer_of(model, digits, [nc.NLC()], wave=16, folder=tmp_path / "whole")
    whole.run(iterations=16)
    whole.run(iterations=60)
    first, second = records(tmp_path / "campaign"), records(tmp_path / "whole")
    assert len(first) == len(second)
    assert all(mine.same_as(theirs) for mine, theirs in zip(first, second, strict=True))


def test_two_processes_cannot_work_on_one_campaign(net, digits, finished):
    other = CampaignFolder(finished)
    other.lock()
    with pytest.raises(CampaignError, match="another process is at work on this campaign"):
        fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=70)
    other.unlock()
    assert fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=62).iterations == 62


def test_a_folder_that_was_tampered_with(finished):
    folder = CampaignFolder(finished)
    config = folder.config()
    (finished / "config.json").write_text(json.dumps({**config, "schema": 9}))
    with pytest.raises(CampaignError, match="a campaign of schema 9, this neuralcov reads up to 2"):
        open_campaign(finished)
    (finished / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if name != "settings"})
    )
    with pytest.raises(CampaignError, match="the configuration lacks 'settings'"):
        open_campaign(finished)
    (finished / "config.json").write_text("{")
    with pytest.raises(CampaignError, match=r"config\.json: damaged"):
        open_campaign(finished)
    (finished / "config.json").write_text(json.dumps(config))
    (finished / "seeds.safetensors").write_bytes(b"")
    with pytest.raises(CampaignError, match=r"seeds\.safetensors: not a neuralcov file, or cut short; restore"):
        open_campaign(finished)


def test_a_wave_missing_from_the_middle_is_noticed(net, digits, finished):
    log = CampaignFolder(finished).log
    first, _, *others = list(log.read())
    log.path.write_bytes(b"")
    for content in (first, *others):
        log.append(content)
    log.close()
    with pytest.raises(CampaignError, match="wave 2 stands where wave 1 belongs; restore it from a copy"):
        open_campaign(finished)
    with pytest.raises(CampaignError, match="wave 2 stands where wave 1 belongs"):
        fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=70)


def test_a_missing_log_is_noticed(net, digits, finished):
    (finished / "queue.log").unlink()
    with pytest.raises(CampaignError, match=r"queue\.log: is missing; restore it from a copy"):
        fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=finished).resume(iterations=70)


@pytest.mark.filterwarnings(f"ignore:.*{TORN}:neuralcov.CoverageWarning")
def test_a_log_cut_short_is_noticed_and_can_be_gone_on_with(net, digits, finished, tmp_path):
    target = cut(finished, tmp_path / "cut", 3)
    shortened = (target / "queue.log").read_bytes()
    wave = len(records(finished))
    with pytest.raises(CampaignError, match=rf"ends after 3 waves, but 0*{wave}.ncov has seen {wave}; restore the log"):
        fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=target).resume(iterations=60)
    assert (target / "queue.log").read_bytes() == shortened
    shutil.rmtree(target / "coverage")  # as the sentence says
    assert fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=target).resume(iterations=60).exact
    same_campaign(finished, target)


@pytest.mark.parametrize("against", [False, True])
def test_coverage_that_was_deleted_is_made_again_from_the_log(net, digits, tmp_path, against):
    def fuzzer(folder):
        rival = copy.deepcopy(net) if against else None
        return fuzzer_of(net, digits, [nc.NLC(), nc.TKNC(2)], wave=16, folder=folder, against=rival)

    fuzzer(tmp_path / "whole").run(iterations=40)
    shutil.copytree(tmp_path / "whole", tmp_path / "lost")
    for path in (tmp_path / "lost" / "coverage").iterdir():
        path.unlink()
    assert fuzzer(tmp_path / "lost").resume().exact
    same_campaign(tmp_path / "whole", tmp_path / "lost")


def test_coverage_that_was_deleted_and_cannot_be_made_again(net, digits, tmp_path):
    """The seeds were not all that it had observed at the start."""

    def fuzzer(before):
        coverage = nc.Coverage(net, [nc.NLC()])
        coverage.update(before / 16)
        plain = {"guide": "coverage", "mutation_choice": "uniform"}
        return nc.Fuzzer(coverage, digits.inputs, digits.labels, levels=16, wave=16, folder=tmp_path / "c", **plain)

    expected = fuzzer(demo.digits("train").inputs[:200]).run(iterations=30)
    shutil.rmtree(tmp_path / "c" / "coverage")
    with pytest.raises(CampaignError, match="no coverage is saved there, and NLC after the seeds is"):
        fuzzer_of(net, digits, [nc.NLC()], wave=16, folder=tmp_path / "c").resume()
    assert fuzzer(demo.digits("train").inputs[:200]).resume().values == expected.values


def test_a_full_disk_stops_the_campaign_and_loses_nothing_committed(net, digits, tmp_path, monkeypatch):
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=tmp_path / "campaign")
    fuzzer.run(iterations=8)
    committed = len(records(tmp_path / "campaign"))

    def full(content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fuzzer.folder.log, "append", full)
    with pytest.raises(CampaignError, match=r"cannot be written .*No space left"):
        fuzzer.run(iterations=400)
    monkeypatch.undo()
    assert len(records(tmp_path / "campaign")) == committed
    again = fuzzer_of(net, digits, [nc.NLC()], wave=8, folder=tmp_path / "campaign")
    assert again.resume(iterations=30).iterations == 30
    assert np.isfinite(again.coverage.values()["NLC"])
