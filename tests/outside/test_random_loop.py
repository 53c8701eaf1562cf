"""Random cases against the oracles: value, order, duplicates, merging, saving, gain and admission, a seed per case."""

import collections
import os
import time
import warnings
from functools import cached_property
from inspect import signature

import numpy as np
import pytest
import torch

import neuralcov as nc
from neuralcov.core.criterion import DUPLICATE_FREE, MERGE_EXACT, ORDER_FREE
from neuralcov.core.errors import InputError
from neuralcov.testing.oracles import Surprise, Undecided, joined
from tests.outside.draws import KINDS, draw

CASES, CHUNK = 2112, 132
# About as many as an hour allows.
SLOW_CASES = int(os.environ.get("NEURALCOV_CASES", "200000"))
ONLY = os.environ.get("NEURALCOV_CASE")


def as_arguments(case, suite):
    """A suite as ``activations=``, in the case's type."""
    return nc.Activations(
        {name: torch.from_numpy(part).to(case.dtype) for name, part in suite.layers.items()},
        labels=torch.from_numpy(suite.labels),
        predictions=torch.from_numpy(suite.predictions),
        relevance={name: torch.from_numpy(part).float() for name, part in suite.relevance.items()},
        present={name: torch.from_numpy(part) for name, part in suite.present.items()},
    )


def coverage_of(case):
    """A calibrated coverage of nothing."""
    widths = {name: part.shape[1] for name, part in case.training.layers.items()}
    coverage = nc.Coverage.of_layers(widths, [case.criterion])
    held_out = None if case.held_out is None else as_arguments(case, case.held_out)
    coverage.calibrate(activations=as_arguments(case, case.training), held_out=held_out)
    return coverage


class Work:
    """A suite in batches, and the coverage that has seen it, made without copies or snapshots."""

    def __init__(self, case):
        self.case, self.criteria = case, coverage_of(case).criteria
        self.batches = split(case.rng, case.suite)
        self.state, self._unused = self.observed(self.batches), True

    def observed(self, batches):
        """A coverage of the same calibration that has seen some batches."""
        coverage = nc.Coverage.of_layers(
            {n: part.shape[1] for n, part in self.case.suite.layers.items()}, self.criteria
        )
        for batch in batches:
            coverage.update(activations=as_arguments(self.case, batch))
        return coverage

    @cached_property
    def value(self):
        """The value before anything else."""
        return value_of(self.state)

    def own(self):
        """The coverage, to be changed; a new one after the first time."""
        unused, self._unused = self._unused, False
        return self.state if unused and "value" in vars(self) else self.observed(self.batches)


def merged(a, b):
    """Both in one. Suites may overlap: what that does is what is looked at."""
    total = a + 0
    options = {"overlap": "allow"} if "overlap" in signature(nc.Coverage.merge).parameters else {}
    total.merge(b, **options)
    return total


def inputs_of(suite):
    """What tells inputs apart, in any order."""
    return sorted(np.concatenate([part[row] for part in suite.layers.values()]).tobytes() for row in range(len(suite)))


def one_by_one(suite):
    return [suite.take(slice(row, row + 1)) for row in range(len(suite))]


def value_of(coverage):
    (value,) = coverage.values().values()
    return value


def split(rng, suite):
    """Batches of random sizes, one of them perhaps empty."""
    cuts = np.sort(rng.integers(0, len(suite) + 1, rng.integers(0, 4)))
    return [suite.take(slice(a, b)) for a, b in zip([0, *cuts], [*cuts, len(suite)], strict=True)]


def close(case, ours, theirs):
    """Counts to the last digits of a division; what is made of sums and logarithms as the type allows."""
    if case.oracle.exact:
        return np.allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    tolerance = 1e-9 if case.dtype == torch.float64 else 2e-5
    scale = max(1e-12, float(np.max(np.abs(theirs), initial=0)))
    largest = max((np.abs(part).max() for part in case.training.layers.values()), default=1)
    absolute = 1e-7 if case.kind == "LVC" else 1e-9 * (1 + largest**2)
    return np.allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale + (absolute if tolerance > 1e-8 else 1e-9))


def check_value(case, work):
    ours, theirs = value_of(work.state), case.oracle.value(work.batches)
    assert close(case, ours, theirs), f"value {ours!r}, expected {theirs!r}"
    if isinstance(case.oracle, Surprise):
        (scores,) = work.state.scores(activations=as_arguments(case, case.suite)).values()
        expected = [case.oracle.score(case.suite, row) for row in range(len(case.suite))]
        wanted = np.array([np.nan if score is None else score for score in expected])
        # A ridge of a hundredth costs two of the sixteen digits, and squares as many again.
        limits = {"rtol": 1e-8 if case.kind == "MDSC" else 1e-9, "atol": 1e-9}
        assert np.allclose(scores.numpy(), wanted, **limits, equal_nan=True), f"{scores.tolist()}, expected {expected}"


def check_order(case, work):
    suite = joined(work.batches)
    moved = split(case.rng, suite.take(case.rng.permutation(len(suite))))
    ours, theirs = value_of(work.observed(moved)), case.oracle.value(moved)
    assert close(case, ours, theirs), f"value {ours!r}, expected {theirs!r}"
    if ORDER_FREE in case.criterion.promises:
        assert close(case, ours, work.value), f"value {work.value!r}, in another order {ours!r}"


def check_duplicates(case, work):
    suite, state = joined(work.batches), work.own()
    again = suite.take(case.rng.integers(0, len(suite), case.rng.integers(1, 5)))
    state.update(activations=as_arguments(case, again))
    ours, theirs = value_of(state), case.oracle.value([*work.batches, again])
    assert close(case, ours, theirs), f"value {ours!r}, expected {theirs!r}"
    if DUPLICATE_FREE in case.criterion.promises:
        assert ours == work.value, f"value {work.value!r}, with duplicates {ours!r}"


def check_merge(case, work):
    suite = joined([*work.batches, case.candidates])
    cut = case.rng.integers(0, len(suite) + 1)
    if inputs_of(suite.take(slice(0, cut))) == inputs_of(suite.take(slice(cut, None))):
        cut = 0  # two runs of the same inputs may be taken for one
    mine, theirs = (split(case.rng, suite.take(rows)) for rows in (slice(0, cut), slice(cut, None)))
    ours, other = (work.observed(some) for some in (mine, theirs))
    expected, swapped = case.oracle.merged(mine, theirs), merged(other, ours)
    found = value_of(merged(ours, other))
    assert close(case, found, expected), f"merged {found!r}, expected {expected!r}"
    if MERGE_EXACT in case.criterion.promises:
        assert close(case, value_of(swapped), expected), "merged the other way round it differs"
    assert swapped.inputs == len(suite)


def check_file(case, work, folder):
    before = coverage_of(case)
    for batch in work.batches:
        before.update(activations=as_arguments(case, batch))
    before.save(folder / "state.ncov")
    learns = bool(before.criteria[0].learns)
    if learns:
        before.save_calibration(folder / "training.ncal")
    after = nc.Coverage.load(folder / "state.ncov", calibration=folder / "training.ncal" if learns else None)
    assert value_of(after) == work.value, f"loaded {value_of(after)!r}, saved {work.value!r}"
    after.update(activations=as_arguments(case, case.candidates))
    theirs = case.oracle.value([*work.batches, case.candidates])
    assert close(case, value_of(after), theirs), f"loaded and gone on {value_of(after)!r}, expected {theirs!r}"


def check_gain(case, work):
    start = [] if case.rng.random() < 0.2 else work.batches
    state = work.state if start else work.observed([])
    ours = next(iter(state.gain(activations=as_arguments(case, case.candidates)).values())).numpy()
    base = [case.candidates.take(slice(0, 0)), *start]
    value, singles = case.oracle.value(base), one_by_one(case.candidates)
    theirs = [case.oracle.value([*base, single]) - value for single in singles]
    assert ours.shape == (len(singles),)
    assert close(case, ours, theirs), f"gain {ours.tolist()}, expected {theirs}"
    assert not start or value_of(state) == work.value, "asking for the gain changed the value"


def check_admit(case, work):
    """The limit is no gain that occurs, so that rounding decides nothing."""
    unit = 1e-3 if not case.oracle.exact else 0.3 / case.training.neurons / 100
    limit, state = float(case.rng.choice([0.0, 0.0, unit, -unit])), work.own()
    taken = state.admit(activations=as_arguments(case, case.candidates), min_gain=limit).tolist()
    seen, expected, value = list(work.batches), [], case.oracle.value(work.batches)
    for single in one_by_one(case.candidates):
        after = case.oracle.value([*seen, single])
        if not case.oracle.exact and after != value and abs(after - value - limit) < 1e-7:
            raise Undecided
        expected.append(after - value > limit and not case.oracle.excluded(single, 0))
        if expected[-1]:
            seen, value = [*seen, single], after
    assert taken == expected, f"admitted {taken}, expected {expected} above {limit}"
    assert close(case, value_of(state), value), f"after admission {value_of(state)!r}, expected {value!r}"


def check_nothing_left(case, work):
    """A suite of which no input takes part: an error, or 0 with a finding that counts inputs that are not finite."""
    state = work.state
    try:
        value = value_of(state)
    except InputError:
        return
    suite = joined(work.batches)
    assert not any(suite.finite(row) for row in range(len(suite))), f"value {value!r} of inputs that are all excluded"
    (finding,) = [found for found in state.findings() if "NaN" in found.sentence]
    assert (value, finding.inputs) == (0, len(suite))


CHECKS = {
    "order": check_order,
    "duplicates": check_duplicates,
    "merge": check_merge,
    "gain": check_gain,
    "admit": check_admit,
}


def run(number, folder, tally):
    """Go through one case: its value, and two more checks."""
    case = draw(number)
    names = ["value", *map(str, case.rng.choice([*CHECKS, "file"], 2, replace=False))]
    if all(case.oracle.excluded(case.suite, row) for row in range(len(case.suite))):
        names = ["nothing left"]
    work = Work(case)
    # Those that change the coverage come last.
    for name in sorted(names, key=lambda name: name in ("duplicates", "admit")):
        try:
            if name == "nothing left":
                check_nothing_left(case, work)
            elif name == "value":
                check_value(case, work)
                assert work.value == value_of(work.state)
            elif name == "file":
                check_file(case, work, folder)
            else:
                CHECKS[name](case, work)
            tally[case.kind, name] += 1
        except Undecided:
            tally[case.kind, "undecided"] += 1
        except Exception as error:
            raise AssertionError(f"{case}, {name}: {type(error).__name__}: {error}") from error


def run_all(numbers, folder):
    """Go through cases; give how often each check was made, and what failed."""
    tally, failed = collections.Counter(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in numbers:
            try:
                run(number, folder, tally)
            except AssertionError as error:
                failed.append(str(error))
            except Exception as error:
                failed.append(f"case {number} could not be set up: {type(error).__name__}: {error}")
    return tally, failed


@pytest.mark.skipif(ONLY is not None, reason="one case is asked for")
@pytest.mark.parametrize("start", range(0, CASES, CHUNK))
def test_cases(start, tmp_path):
    tally, failed = run_all(range(start, start + CHUNK), tmp_path)
    assert not failed, "\n".join(failed)
    decided = sum(count for (_, name), count in tally.items() if name != "undecided")
    assert decided > 0.9 * 3 * CHUNK
    assert {kind for kind, name in tally if name == "value"} == set(KINDS)


@pytest.mark.skipif(ONLY is None, reason="NEURALCOV_CASE names one")
def test_one_case(tmp_path):
    _, failed = run_all([int(ONLY)], tmp_path)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_many_cases(tmp_path):
    started = time.monotonic()
    tally, failed = run_all(range(CASES, CASES + SLOW_CASES), tmp_path)
    seconds = time.monotonic() - started
    assert not failed, f"{len(failed)} of {SLOW_CASES} cases in {seconds:.0f} s: " + "\n".join(failed[:50])
    assert sum(count for (_, name), count in tally.items() if name == "value") > 0.95 * SLOW_CASES
