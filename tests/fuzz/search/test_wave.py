"""Waves of one seed against the algorithm as one would write it down; larger waves against judging one by one."""

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.fuzz import image_mutations
from neuralcov.fuzz.campaign.log import REJECTED
from neuralcov.fuzz.mutations import MutationDraw
from neuralcov.fuzz.randomness import wave_generator
from tests.fuzz.support import coverage_of, fuzzer_of


def algorithm_1(coverage, digits, iterations, seed, tries, rounds):
    """Sample a seed, mutate it up to so many times, keep the first mutant that is valid and raises coverage.

    Randomness is that of the search: a stream per wave. A wave ends with a candidate that was judged, or with its
    rounds, which here are 1 or all tries.
    """
    mutations = image_mutations(8)
    coverage.update(digits.inputs / 16)
    queue = [(image, image, False) for image in digits.inputs]  # the input, what it is compared with, whether moved
    wave, kept = 0, []

    def change(mutation, image, chance):
        setting = mutation.choose(np.array([chance]))
        return (mutation.apply(image[None] / 16, MutationDraw.of_batch(setting))[0].clamp(0, 1) * 16).round().byte()

    for _ in range(iterations):
        numbers = wave_generator(seed, wave)
        image, reference, moved = queue[int(numbers.random() * len(queue))]
        for tried in range(1, tries + 1):
            allowed = [mutation for mutation in mutations if not (moved and mutation.geometric)]
            mutation, chance = allowed[int(numbers.random() * len(allowed))], numbers.random()
            mutant = change(mutation, image, chance)
            origin = change(mutation, reference, chance) if mutation.geometric else reference
            difference = (mutant.int() - origin.int()).abs()
            valid = int((difference > 0).sum()) < 0.2 * 64 or int(difference.max()) < 0.4 * 16
            gains = bool(valid) and float(next(iter(coverage.gain(mutant[None] / 16).values()))) > 0
            if valid or tried % rounds == 0 or tried == tries:
                wave += 1
                numbers = wave_generator(seed, wave)
            if gains:
                coverage.update(mutant[None] / 16)
                queue.append((mutant, origin, moved or mutation.geometric))
                kept.append(mutant)
                break
    return torch.stack(kept), wave


@pytest.mark.parametrize("rounds", [1, 6])
@pytest.mark.parametrize("criterion", [nc.NLC(), nc.NC(0.95), nc.LVC()], ids=lambda criterion: criterion.name)
def test_a_wave_of_one_is_algorithm_1(net, digits, criterion, rounds):
    few = digits.take(slice(0, 12))
    campaign = fuzzer_of(net, few, [criterion], wave=1, tries=6, rounds=rounds, seed=3).run(iterations=50)
    expected, waves = algorithm_1(coverage_of(net, [criterion]), few, 50, seed=3, tries=6, rounds=rounds)
    assert campaign.iterations == 50
    assert campaign.stats.waves == waves
    assert campaign.outputs >= 5
    assert torch.equal(campaign.inputs, expected)


def one_by_one(coverage, wave, min_gain):
    """Which valid candidates are admitted when each is judged on the state it meets."""
    taken = []
    for row in np.flatnonzero(wave.acceptable):
        inputs = wave.mutants[row : row + 1] / 16
        if any(float(gain) > min_gain for gain in coverage.gain(inputs).values()):
            coverage.update(inputs)
            taken.append(int(row))
    return taken


@pytest.mark.parametrize("min_gain", [0.0, 2e-3])
@pytest.mark.parametrize(
    "criteria",
    [[nc.NLC()], [nc.NC(0.95)], [nc.LVC()], [nc.KMNC(10)], [nc.NLC(), nc.NC(0.95)]],
    ids=lambda criteria: "+".join(criterion.name for criterion in criteria),
)
def test_candidates_of_a_wave_are_judged_on_the_state_they_meet(net, digits, criteria, min_gain):
    few = digits.take(slice(0, 12))
    fuzzer = fuzzer_of(net, few, criteria, wave=24, min_gain=min_gain)
    fuzzer.run(iterations=0)
    plain = coverage_of(net, criteria)
    plain.update(few.inputs / 16)
    search = fuzzer.search
    shares = []
    with fuzzer.coverage.tap():
        for _ in range(3):
            wave = search.draw(None)
            record, _ = search.advance(None, lambda: 0.0)
            expected = one_by_one(plain, wave, min_gain)
            assert record.kept.tolist() == expected
            assert ((record.candidates["verdict"] == REJECTED) == ~wave.acceptable).all()
            shares.append(len(expected) / int(wave.acceptable.sum()))
    assert fuzzer.coverage.values(warn=False) == pytest.approx(plain.values(warn=False))
    assert sum(shares) > 0
    if min_gain:
        assert sum(shares) < 3


def test_one_factorisation_per_wave_judges_all_on_the_state_before_it(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.LVC(refresh=24)], wave=24)
    fuzzer.run(iterations=0)
    search = fuzzer.search
    with fuzzer.coverage.tap():
        wave = search.draw(None)
        valid = torch.from_numpy(np.flatnonzero(wave.acceptable))
        gains = fuzzer.coverage.gain(wave.mutants[valid] / 16)["LVC"]
        record, _ = search.advance(None, lambda: 0.0)
    assert record.kept.tolist() == valid[gains > 0].tolist()


@pytest.mark.parametrize("refresh", [1, 3])
def test_refresh_counts_admissions(net, digits, refresh):
    fuzzer = fuzzer_of(net, digits, [nc.LVC(refresh=refresh)], wave=24)
    fuzzer.run(iterations=0)
    plain = coverage_of(net, [nc.LVC()])
    plain.update(digits.inputs / 16)
    search = fuzzer.search
    with fuzzer.coverage.tap():
        wave = search.draw(None)
        record, _ = search.advance(None, lambda: 0.0)
    waiting, expected = [], []
    for row in np.flatnonzero(wave.acceptable):
        if float(plain.gain(wave.mutants[row : row + 1] / 16)["LVC"]) > 0:
            waiting.append(int(row))
        if len(waiting) == refresh:
            plain.update(wave.mutants[waiting] / 16)
            expected, waiting = expected + waiting, []
    assert record.kept.tolist() == expected + waiting


def test_the_share_admitted_and_the_other_figures_add_up(net, digits):
    campaign = fuzzer_of(net, digits, [nc.NLC()], wave=16, min_gain=0.01).run(iterations=30)
    stats = campaign.stats
    assert stats.iterations == 30
    assert stats.candidates >= stats.valid >= stats.judged > stats.kept == campaign.outputs
    assert stats.admitted == stats.kept / stats.judged
    assert stats.queue == 60 + stats.kept
    assert stats.growth["NLC"] == pytest.approx(campaign.values["NLC"] - _seeds_alone(net, digits))


def _seeds_alone(net, digits):
    coverage = coverage_of(net, [nc.NLC()])
    coverage.update(digits.inputs / 16)
    return coverage.values()["NLC"]


def test_the_baseline_accepts_everything_and_checks_nothing(net, digits):
    def nothing_is_valid(mutants, references):
        raise AssertionError("the baseline judges no validity")

    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16, guide="random", validity=nothing_is_valid)
    campaign = fuzzer.run(iterations=50)
    assert campaign.iterations == campaign.outputs == campaign.stats.candidates == 50
    assert campaign.stats.admitted == 1.0
    assert campaign.values == {}
    assert fuzzer.coverage.inputs == 0


def test_no_seed_is_sampled_beyond_the_limit_and_all_are_finished(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NC(0.95)], wave=16, tries=3, min_gain=0.5)
    campaign = fuzzer.run(iterations=21)
    assert campaign.iterations == 21
    assert campaign.outputs == 0
    assert campaign.stats.candidates == 21 * 3
    assert fuzzer.run(iterations=30).iterations == 30


def test_picks_count_what_was_kept(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=8, schedule="fresh")
    fuzzer.run(iterations=80)
    entries = fuzzer.search.state.corpus.entries
    kept = entries["parent"][60:]
    assert entries["picks"].tolist() == np.bincount(kept, minlength=len(entries)).tolist()
    # Seeds that have brought five mutants are left with a hundredth of the chance.
    assert entries["picks"].max() <= 6


def test_the_same_seed_gives_the_same_campaign(net, digits):
    first, again, other = (
        fuzzer_of(net, digits, [nc.NLC()], wave=16, seed=seed).run(iterations=40) for seed in (5, 5, 6)
    )
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs[:10], other.inputs[:10])


def test_the_end_by_faults_and_by_time(net, digits):
    fuzzer = fuzzer_of(net, digits, [nc.NLC()], wave=16)
    campaign = fuzzer.run(faults=3)
    assert len(campaign.faults) >= 3
    seconds = campaign.stats.seconds
    later = fuzzer.run(seconds=seconds + 0.2)
    # Stats are rounded to milliseconds; the sum of two such numbers need not be one of them.
    assert round(seconds + 0.2, 3) <= later.stats.seconds < seconds + 60
    assert later.outputs > campaign.outputs
