"""Standard errors of criteria that tick off cells, against a jackknife by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.activations import Activations
from neuralcov.testing.cases import calibrated, random_batch
from neuralcov.testing.oracles.kinds import jackknife
from tests.support import WIDTHS, as_tensors, covered, suite

FOLDS = 10
CRITERIA = [
    nc.NC(0.25),
    nc.KMNC(1),
    nc.KMNC(9),
    nc.NBC(),
    nc.SNAC(),
    nc.TKNC(1),
    nc.NPC(clusters=2, buckets=7),
    nc.NPC(0.5, 0.6, 2, 4, "activation"),
]
each_criterion = pytest.mark.parametrize("criterion", CRITERIA, ids=lambda criterion: criterion.name)


def case(criterion, size=60, seed=1):
    generator = torch.Generator().manual_seed(seed)
    training = random_batch(generator, [4, 6, 4], 40, "smooth")
    return calibrated(criterion, training), random_batch(generator, [4, 6, 4], size, "smooth", spread=1.4)


def observed(criterion, *batches):
    state = criterion.init(batches[0].layout)
    for batch in batches:
        state = criterion.observe(state, batch)
    return state


def with_errors(criterion):
    return replace(criterion, errors=True)


def bits_of(state):
    parts = state.folds if isinstance(state.folds, tuple) else (state.folds,)
    return [*(part.tolist() for part in parts), state.by_fold.tolist()]


def test_neuron_coverage_by_hand():
    # Few enough inputs that some neurons are hit by one fold only.
    tests = suite(3, 14)
    folds = Activations(as_tensors(tests)).folds(FOLDS).numpy()

    def share(chosen):
        hit = 0
        for values in tests.values():
            rows = values[chosen].astype(np.float64)
            low, high = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
            with np.errstate(invalid="ignore"):
                hit += int(((rows - low) / (high - low) > 0.75).any(0).sum())
        return hit / sum(WIDTHS.values())

    used, sizes = np.unique(folds, return_counts=True)
    expected = jackknife(share(folds >= 0), [share(folds != fold) for fold in used], sizes.tolist())
    assert covered(nc.NC(0.75), tests).details() == {}
    found = covered(nc.NC(0.75, errors=True), tests, batch=7)
    assert found.details() == {"NC(0.75)": {"error": pytest.approx(expected, abs=1e-12)}}
    assert expected > 0.01


@each_criterion
@pytest.mark.parametrize("size", [7, 60])
def test_leaving_out_each_fold(criterion, size):
    plain, batch = case(criterion, size)
    folds = batch.folds(FOLDS)
    used, sizes = folds.unique(return_counts=True)
    left = [float(plain.value(observed(plain, batch.take(folds != fold)))) for fold in used]
    whole = float(plain.value(observed(plain, batch)))
    found = with_errors(plain).details(observed(with_errors(plain), batch))
    assert found == {"error": pytest.approx(jackknife(whole, left, sizes.tolist()), abs=1e-12)}


@each_criterion
def test_bits_are_the_same_however_inputs_come(criterion):
    plain, batch = case(criterion)
    folding = with_errors(plain)
    whole = observed(folding, batch)
    parts = [batch.take(slice(start, start + 7)) for start in range(0, batch.size, 7)]
    assert bits_of(observed(folding, *parts)) == bits_of(whole)
    backwards = batch.take(torch.arange(batch.size - 1, -1, -1))
    assert bits_of(observed(folding, backwards)) == bits_of(whole)
    halves = [observed(folding, batch.take(some)) for some in (slice(0, 20), slice(20, 60))]
    assert bits_of(folding.merge(*halves)) == bits_of(whole)
    donated = folding.init(batch.layout)
    for part in parts:
        donated = folding.observe(donated, part, donate=True)
    assert bits_of(donated) == bits_of(whole)
    # The values are those of a criterion that keeps no folds.
    assert torch.equal(folding.value(whole), plain.value(observed(plain, batch)))


@each_criterion
def test_only_admitted_inputs_count(criterion):
    plain, batch = case(criterion)
    folding = with_errors(plain)
    state = observed(folding, batch.take(slice(0, 1)))
    rest = batch.take(slice(1, 60))
    admitted, after = folding.admit(state, rest)
    assert 0 < int(admitted.sum()) < rest.size
    assert bits_of(after) == bits_of(folding.observe(state, rest.take(admitted)))
    assert int(after.by_fold.sum()) == int(after.counts[0])


@pytest.mark.parametrize("size", [100, 400])
def test_errors_are_how_far_suites_differ(size):
    # Drawn anew each time, so that the deviation between suites is the error itself.
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(6, 20, generator=generator)

    def inputs(count):
        return {"fc": torch.tanh(torch.randn(count, 6, generator=generator) @ weights)}

    cov = nc.Coverage.of_layers({"fc": 20}, [nc.KMNC(50, errors=True), nc.TKNC(1, errors=True)])
    cov.calibrate(activations=inputs(2000))
    values, errors = [], []
    for _ in range(60):
        cov.reset()
        cov.update(activations=inputs(size))
        values.append(list(cov.values().values()))
        errors.append([figures["error"] for figures in cov.details().values()])
    deviation, error = np.std(values, axis=0, ddof=1), np.sqrt(np.square(errors).mean(0))
    told = deviation > 0
    assert told[0]
    assert np.all((error[told] > 0.7 * deviation[told]) & (error[told] < 1.6 * deviation[told])), error / deviation


def test_excluded_inputs_are_in_no_fold():
    folding = nc.NC(0.5, errors=True)
    batch = Activations({"a": torch.tensor([[0.0, 1.0], [torch.nan, 2.0], [1.0, 0.0]])})
    state = observed(folding, batch)
    assert int(state.by_fold.sum()) == 2
    assert folding.details(observed(folding, batch.take(slice(0, 2)))) == {}


def test_what_is_not_known_of_a_part_is_not_known_of_the_whole(tmp_path):
    plain, batch = case(nc.KMNC(3))
    folding = with_errors(plain)
    for pair in ((plain, folding), (folding, plain)):
        merged = pair[0].merge(observed(pair[0], batch), observed(pair[1], batch))
        assert (merged.folds, merged.by_fold, pair[0].details(merged)) == (None, None, {})
        assert folding.observe(merged, batch).folds is None


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_coverages_with_and_without_errors_take_over_each_other(tmp_path, ours, theirs):
    tests = suite(3, 40)
    other = covered(nc.TKNC(1, errors=theirs), tests)
    own = nc.Coverage.of_layers(WIDTHS, [nc.TKNC(1, errors=ours)])
    own.merge(other)
    known = other.details()
    assert bool(known) is theirs
    assert own.details() == known
    own.save(tmp_path / "a.ncov")
    assert nc.Coverage.load(tmp_path / "a.ncov").details() == known
    restored = nc.Coverage.of_layers(WIDTHS, [nc.TKNC(1, errors=ours)])
    restored.restore(other.snapshot())
    assert restored.details() == known
    own.merge(covered(nc.TKNC(1), suite(4, 10)))
    assert own.details() == {}
    own.save(tmp_path / "b.ncov")
    assert nc.Coverage.load(tmp_path / "b.ncov").values() == own.values()


def test_errors_are_true_or_false():
    with pytest.raises(nc.NeuralcovError, match=r"SNAC\(errors='yes'\): errors must be one of True, False"):
        nc.SNAC(errors="yes")
    assert nc.NC(0.5, errors=True).name == "NC(0.5)"
