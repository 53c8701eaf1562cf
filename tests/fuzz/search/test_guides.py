"""Guides: what they keep, that none throws a fault away, and that all of them resume to the bit."""

import shutil

import numpy as np
import pytest
import torch
from scipy.special import softmax

import neuralcov as nc
from neuralcov.core.errors import InputError
from neuralcov.fuzz import FuzzSettings
from neuralcov.fuzz.campaign.folder import CampaignFolder
from neuralcov.fuzz.campaign.log import KEPT, NO_RESULT, REJECTED, WaveRecord
from neuralcov.fuzz.campaign.reader import open_campaign
from neuralcov.fuzz.search.guides import below_best, form_weights, mutation_weights
from neuralcov.fuzz.settings import GUIDES
from tests.fuzz.support import fuzzer_of
from tests.fuzz.test_resume import same_campaign

ALL = [*({"guide": name} for name in GUIDES), {"guide": "random", "check_random": True}]
ALL += [{**some, "mutation_choice": by} for some in ALL for by in ("bandit", "forecast")]
ALL += [{"guide": "margin", "stack": 3}]


def ids(some):
    return "-".join(map(str, some.values()))


def waves(fuzzer, count):
    """Search wave by wave; yield the candidates as drawn, and the record of what became of them."""
    with fuzzer.coverage.tap():
        for _ in range(count):
            wave = fuzzer.search.draw(None)
            record, _ = fuzzer.search.advance(None, lambda: 0.0)
            yield wave, record


@pytest.mark.parametrize("some", ALL, ids=ids)
def test_no_fault_is_thrown_away(net, digits, some):
    """Every mutant that was run is checked, whether or not it is kept: against the model, run anew on all of them."""
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, max_per_group=2, **some)
    fuzzer.run(iterations=0)
    with torch.no_grad():
        right = net(digits.inputs / 16).argmax(1) == digits.labels
    seen, saved, misread, kept = {}, 0, 0, 0
    for wave, record in waves(fuzzer, 8):
        rows = record.candidates
        roots = fuzzer.search.state.corpus.entries["root"][rows["parent"]]
        with torch.no_grad():
            classes = net(wave.mutants / 16).argmax(1)
        for row in np.flatnonzero(wave.acceptable):
            root, label = int(roots[row]), int(digits.labels[roots[row]])
            wrong = bool(right[root]) and int(classes[row]) != label
            assert bool(rows["fault_types"][row]) == wrong
            if wrong:
                key = root, int(classes[row])
                seen[key] = seen.get(key, 0) + 1
                misread += 1
                kept += rows["verdict"][row] == KEPT
                assert bool(rows["saved"][row]) == (seen[key] <= 2 or rows["verdict"][row] == KEPT)
            saved += wrong and rows["saved"][row]
    counts = fuzzer.search.state.counts
    assert misread > 5
    assert (counts.faulty, counts.faulty_kept, counts.faults) == (misread, kept, saved)
    assert (counts.distinct, len(counts.broken)) == (len(seen), len({root for root, _ in seen}))
    once = sum(times == 1 for times in seen.values())
    assert counts.new_fault_chance == pytest.approx(once / counts.run)
    assert len(fuzzer.search.state.faults) == saved


@pytest.mark.parametrize("name", ["margin", "elites", "margin+coverage"])
def test_margins_are_those_of_a_plain_softmax_and_what_is_kept_is_nearer(net, digits, name):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, guide=name)
    fuzzer.run(iterations=0)
    kept = 0
    for wave, record in waves(fuzzer, 6):
        rows, entries = record.candidates, fuzzer.search.state.corpus.entries
        with torch.no_grad():
            shares = softmax(net(wave.mutants / 16).double().numpy(), axis=1)
        labels = digits.labels.numpy()[entries["root"][rows["parent"]]]
        own = shares[np.arange(len(rows)), labels].copy()
        shares[np.arange(len(rows)), labels] = -1
        run = wave.acceptable
        assert rows["margin"][run] == pytest.approx((own - shares.max(1))[run], abs=1e-6)
        assert (rows["rival"][run] == shares.argmax(1)[run]).all()
        assert np.isnan(rows["margin"][~run]).all()
        nearer = rows["margin"] < entries["margin"][rows["parent"]]
        sound = run & (rows["fault_types"] == 0)
        if name == "margin":
            assert ((rows["verdict"] == KEPT) == (sound & nearer)).all()
        else:
            assert sound[rows["verdict"] == KEPT].all()
        kept += len(record.kept)
    assert kept > 5


def test_a_parent_of_a_margin_guide_is_run_once(net, digits):
    campaign = fuzzer_of(net, digits, [nc.NC(0.95)], wave=24, guide="margin").run(iterations=100)
    assert campaign.iterations == 100
    assert campaign.stats.judged <= 100
    assert campaign.values == {}


def test_elites_serve_every_pair_of_classes(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=60, guide="elites")
    fuzzer.run(iterations=0)
    state = fuzzer.search.state
    parents = fuzzer.search.draw(None).table["parent"]
    entries = state.corpus.entries
    pairs = {(int(digits.labels[row]), int(entries["rival"][row])) for row in range(60)}
    chosen = {(int(digits.labels[row]), int(entries["rival"][row])) for row in parents}
    # A tenth of the parents is drawn evenly, in place of the best of some pairs.
    assert len(chosen) >= 0.75 * len(pairs)


@pytest.mark.parametrize("some", ALL, ids=ids)
def test_every_guide_resumes_to_the_bit(net, digits, tmp_path, some):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=whole, **some).run(iterations=90)
    fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=parts, **some).run(iterations=30)
    shutil.rmtree(parts / "faults")
    (parts / "faults").mkdir()
    # As far as waves were cut short by the first limit, the whole campaign is made anew with it.
    fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=parts, **some).resume(iterations=90)
    again = tmp_path / "again"
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=again, **some)
    fuzzer.run(iterations=30)
    fuzzer.run(iterations=90)
    logs = [
        [WaveRecord.from_bytes(content) for content in CampaignFolder(folder).log.read()] for folder in (parts, again)
    ]
    assert len(logs[0]) == len(logs[1]) > 3
    assert all(mine.same_as(theirs) for mine, theirs in zip(*logs, strict=True))
    stored, live = open_campaign(parts).state, fuzzer.search.state
    assert stored.counts.seen == live.counts.seen
    for name in ("form_runs", "form_rewards", "parent_runs", "parent_faults", "misread_anew", "found"):
        assert np.array_equal(getattr(stored.experience, name), getattr(live.experience, name)), name


@pytest.mark.parametrize("some", ALL, ids=ids)
def test_every_guide_goes_on_after_a_kill(net, digits, tmp_path, some):
    """Coverage from the start, two waves of the log and a torn one are left: what comes of it is the whole campaign."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=whole, **some).run(calls=90)
    fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=killed, **some).run(iterations=0)
    packs = [len(content) + 16 for content in CampaignFolder(whole).log.read()]
    assert len(packs) > 4
    (killed / "queue.log").write_bytes((whole / "queue.log").read_bytes()[: sum(packs[:2]) + 21])
    with pytest.warns(nc.CoverageWarning, match="bytes were no whole wave and were cut off"):
        campaign = fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, folder=killed, **some).resume(calls=90)
    assert campaign.exact
    same_campaign(whole, killed, covered="coverage" in some["guide"])


def test_elites_are_those_of_a_plain_loop():
    draw = np.random.default_rng(0)
    for _ in range(300):
        known = draw.integers(0, 4, draw.integers(0, 9))
        values = draw.integers(-3, 6, len(known)) / 4
        values = np.where(draw.random(len(known)) < 0.1, np.nan, values)
        groups = draw.integers(0, 5, draw.integers(0, 12))
        candidates = draw.integers(-4, 6, len(groups)) / 4
        best, expected = {}, []
        for group, value in zip(known.tolist(), values.tolist(), strict=True):
            best[group] = min(best.get(group, np.inf), np.inf if np.isnan(value) else value)
        for group, value in zip(groups.tolist(), candidates.tolist(), strict=True):
            expected.append(value < best.get(group, np.inf))
            best[group] = min(best.get(group, np.inf), value)
        assert below_best(known, values, groups, candidates).tolist() == expected


def test_the_bandit_prefers_what_brought_faults(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=32, guide="margin", mutation_choice="bandit")
    fuzzer.run(iterations=0)
    state = fuzzer.search.state
    before = mutation_weights(state)
    assert before == pytest.approx(np.full(len(before), 1 / len(before)))
    runs, rewards = np.zeros(len(before)), np.zeros(len(before))
    for _, record in waves(fuzzer, 10):
        rows = record.candidates
        for row in np.flatnonzero((rows["verdict"] != REJECTED) & (rows["verdict"] != NO_RESULT)):
            runs[rows["mutation"][row]] += 1
    assert state.experience.form_runs.sum(1) == pytest.approx(runs)
    rewards = state.experience.form_rewards.sum(1)
    # A new fault is worth 1; taken margin at most a twentieth.
    assert 0 <= rewards.sum() - state.counts.distinct <= 0.05 * runs.sum()
    weights = mutation_weights(state)
    assert weights.sum() == pytest.approx(1)
    assert weights.min() >= 0.1 / len(weights)
    means = (rewards + 5 * (rewards.sum() + 1) / (runs.sum() + 1)) / (runs + 5)
    assert (np.argsort(weights) == np.argsort(means)).all()
    forms = form_weights(state, int(np.argmax(runs)))
    assert forms.sum() == pytest.approx(1)


def test_the_end_when_little_is_new(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=32, guide="margin", mutation_choice="bandit")
    campaign = fuzzer.run(until_new=0.2, iterations=5000)
    assert campaign.stats.iterations < 5000
    assert campaign.stats.new_fault_chance < 0.2
    assert "further mutants shows a fault not seen so far" in campaign.stats.still_faults
    further = fuzzer.run(until_new=0.1, iterations=8000)
    assert further.stats.iterations > campaign.stats.iterations
    with pytest.raises(InputError, match=r"until_new=2: expected a share above 0 and below 1, such as 0\.001"):
        fuzzer.run(until_new=2)


def test_a_guide_that_reads_scores_says_so_where_there_are_none(digits):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3))
    coverage = nc.Coverage(model, [nc.NC(0.5)], predict=lambda output: output.amax((1, 2, 3)).long())
    fuzzer = nc.Fuzzer(coverage, digits.inputs, digits.labels, levels=16, guide="margin")
    with pytest.raises(InputError, match="the guide reads how sure the model is, and its output has no score"):
        fuzzer.run(iterations=5)


def test_the_default_goes_by_coverage_where_there_are_no_scores(digits):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3))
    coverage = nc.Coverage(model, [nc.KMNC(50)], predict=lambda output: output.amax((1, 2, 3)).long())
    coverage.calibrate([digits.inputs[:30] / 16])
    campaign = nc.Fuzzer(coverage, digits.inputs, digits.labels, levels=16, preprocess=lambda x: x).run(calls=300)
    assert campaign.stats.kept == campaign.state.counts.kept > 10
    assert np.isnan(campaign.state.corpus.entries["margin"]).all()


@pytest.mark.parametrize("some", [{"guide": "coverage"}, {"guide": "margin", "mutation_choice": "bandit"}], ids=ids)
def test_an_end_after_so_many_calls_of_the_model(net, digits, some):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=20, **some)
    campaign = fuzzer.run(calls=100)
    run = [1 for fault in campaign.faults if fault.fault_types]
    assert 100 <= campaign.state.counts.run < 120
    assert len(run) <= campaign.state.counts.run
    assert fuzzer.run(calls=150).state.counts.run >= 150


def test_folders_of_the_first_campaigns_say_guidance():
    first = FuzzSettings(guide="random", wave=3)
    assert FuzzSettings.from_json({"guidance": "random", "wave": 3}) == first
    assert FuzzSettings(guide="random").first_difference({"guidance": "coverage"}) == "guide"
