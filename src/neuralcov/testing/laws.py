"""The laws, each a function of a case, and the check that tries them all on a criterion."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.arguments import require
from neuralcov.core.counts import NOT_FINITE, VALID
from neuralcov.core.criterion import (
    ALL_PROMISES,
    DUPLICATE_FREE,
    MERGE_EXACT,
    NEVER_FALLS,
    ORDER_FREE,
    SPLIT_FREE,
    SUBMODULAR,
    Criterion,
)
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.records import flatten, unflatten
from neuralcov.testing import admitting, keeping
from neuralcov.testing.cases import LawCase, calibrated, moved, with_not_finite
from neuralcov.testing.cases import copied as _copy
from neuralcov.testing.cases import same as _same
from neuralcov.testing.cases import unchanged as _unchanged

Law = Callable[[LawCase], None]


def check_criterion(criterion: Criterion[Any], *, examples: int = 20, device: torch.device | str = "cpu") -> None:
    """Try every law on ``criterion``; raise an ``AssertionError`` that names the law that fails.

    Args:
        criterion: uncalibrated, with the hyper-parameters to try.
        examples: how many random cases each law is tried on.
        device: a second device whose results must agree with the CPU's.

    Examples:
        >>> import neuralcov as nc
        >>> check_criterion(nc.NC(0.5), examples=3)
    """
    unknown = criterion.promises - ALL_PROMISES
    assert not unknown, f"{criterion.name} promises {sorted(unknown)}, which nobody can check"
    for law in LAWS:
        _try(law, criterion, examples)
    if torch.device(device).type != "cpu":
        check_devices(criterion, device, examples=examples)


def check_devices(criterion: Criterion[Any], device: torch.device | str, *, examples: int = 20) -> None:
    """Check that value and gains of ``criterion`` on ``device`` are those on the CPU."""
    _try(devices_law(device), criterion, examples)


def _try(law: Law, criterion: Criterion[Any], examples: int) -> None:
    hypothesis = require("hypothesis", "laws on random cases", extra="testing")
    from neuralcov.testing.strategies import cases

    @hypothesis.settings(  # type: ignore[untyped-decorator]
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases(criterion))  # type: ignore[untyped-decorator]
    def attempt(case: LawCase) -> None:
        law(case)

    attempt()


def law_value_is_a_number(case: LawCase) -> None:
    """Check that the value is 0-d float64, starts at 0, and layers, where they have values, have one each."""
    criterion = case.criterion
    empty = criterion.init(case.suite.layout)
    _same(criterion.value(empty), torch.zeros((), dtype=torch.float64), "the empty value")
    state = criterion.observe(empty, case.suite)
    value = criterion.value(state)
    assert (value.shape, value.dtype) == ((), torch.float64), f"value is {value.dtype} of shape {tuple(value.shape)}"
    assert value.isfinite(), f"the value is {value}"
    layers = criterion.by_layer(state)
    assert layers is None or layers.shape == (len(case.suite.layers),), "by_layer does not give one value per layer"


def law_gain_is_the_change_of_value(case: LawCase) -> None:
    """Check that ``gain`` of each input equals what observing it alone does, and changes nothing."""
    criterion = case.criterion
    state = criterion.observe(criterion.init(case.suite.layout), case.suite)
    kept = _copy(state)
    gains = criterion.gain(state, case.candidates)
    _unchanged(state, kept, "gain changed the state")
    assert gains.shape == (case.candidates.size,), f"gain has shape {tuple(gains.shape)}"
    assert gains.dtype == torch.float64, f"gain is {gains.dtype}"
    before = criterion.value(state)
    for index in range(case.candidates.size):
        alone = criterion.observe(state, case.candidates.take(slice(index, index + 1)))
        change = criterion.value(alone) - before
        _same(gains[index], change, f"gain of input {index}", scale=float(before.abs()))
    _unchanged(state, kept, "observe changed the state it was given")


def law_gain_on_nothing_observed(case: LawCase) -> None:
    """Check the same on the empty state."""
    criterion = case.criterion
    empty = criterion.init(case.suite.layout)
    gains = criterion.gain(empty, case.candidates)
    for index in range(case.candidates.size):
        alone = criterion.observe(empty, case.candidates.take(slice(index, index + 1)))
        _same(gains[index], criterion.value(alone), f"gain of input {index} on nothing")


def law_donating_changes_no_result(case: LawCase) -> None:
    """Check that a chain of donated observations ends where a pure one does, and a kept state survives it."""
    criterion = case.criterion
    parts = [case.suite.take(slice(i, i + 3)) for i in range(0, case.suite.size, 3)]
    pure = donated = criterion.init(case.suite.layout)
    for part in parts:
        pure = criterion.observe(pure, part)
    middle = criterion.observe(donated, parts[0])
    kept = _copy(middle)
    donated = criterion.observe(middle, parts[0].take(slice(0, 0)))
    for part in parts[1:]:
        donated = criterion.observe(donated, part, donate=True)
    _unchanged(middle, kept, "a donated observation overwrote a state that was not donated")
    _same(criterion.value(donated), criterion.value(pure), "the value after donated observations")


def law_empty_batch(case: LawCase) -> None:
    """Check that a batch of no input changes nothing and has no gains."""
    criterion = case.criterion
    nothing = case.suite.take(slice(0, 0))
    state = criterion.observe(criterion.init(case.suite.layout), case.suite)
    after = criterion.observe(state, nothing)
    _same(criterion.value(after), criterion.value(state), "the value after an empty batch")
    assert criterion.gain(state, nothing).shape == (0,), "gain of an empty batch is not empty"


def law_not_finite_inputs_are_left_out(case: LawCase) -> None:
    """Check that inputs with NaN or infinite outputs change no value, have no gain, and are counted."""
    criterion = case.criterion
    broken = with_not_finite(case.suite, every=1)
    clean = criterion.observe(criterion.init(case.suite.layout), case.candidates)
    mixed = criterion.observe(criterion.init(case.suite.layout), Activations.cat([broken, case.candidates]))
    _same(criterion.value(mixed), criterion.value(clean), "the value with inputs that are not finite")
    assert int(mixed.counts[NOT_FINITE]) == case.suite.size, "inputs that are not finite were not counted"
    assert int(mixed.counts[VALID]) == int(clean.counts[VALID]), "inputs taken were miscounted"
    assert not criterion.gain(clean, broken).any(), "an input that is not finite has a gain"


def law_merging_with_nothing(case: LawCase) -> None:
    """Check that merging with the empty state changes nothing, on either side."""
    criterion = case.criterion
    empty = criterion.init(case.suite.layout)
    state = criterion.observe(empty, case.suite)
    for merged in (criterion.merge(state, empty), criterion.merge(empty, state)):
        _same(criterion.value(merged), criterion.value(state), "the value after merging with nothing")


def law_storing_changes_nothing(case: LawCase) -> None:
    """Check that a state, taken apart and rebuilt as files do it, has the same value and the same next gain."""
    criterion = case.criterion
    state = criterion.observe(criterion.init(case.suite.layout), case.suite)
    tensors: dict[str, Tensor] = {}
    again = unflatten(flatten(state, "state", tensors), tensors)
    assert type(again) is type(state), "a state comes back as another type"
    _same(criterion.value(again), criterion.value(state), "the value after storing")
    _same(criterion.gain(again, case.candidates), criterion.gain(state, case.candidates), "the gain after storing")


def law_names_rebuild_the_criterion(case: LawCase) -> None:
    """Check that a criterion rebuilt from its stored parameters has the same name."""
    again = type(case.criterion)(**case.criterion.parameters)
    assert again.name == case.criterion.name, f"{case.criterion.name} is rebuilt as {again.name}"


def law_float32_and_float64_agree(case: LawCase) -> None:
    """Check that the same numbers in float64 give the same value."""
    double = moved(case.suite, "cpu", torch.float64)
    _same(_value(case.criterion, double), _value(case.criterion, case.suite), "the value from float64 outputs")


def law_never_falls(case: LawCase) -> None:
    """Check that no batch lowers the value."""
    if NEVER_FALLS not in case.criterion.promises:
        return
    state = case.criterion.init(case.suite.layout)
    value = case.criterion.value(state)
    for start in range(0, case.suite.size, 2):
        state = case.criterion.observe(state, case.suite.take(slice(start, start + 2)))
        after = case.criterion.value(state)
        assert after >= value - 1e-12 * value.abs(), f"the value fell from {value} to {after}"
        value = after


def law_order_free(case: LawCase) -> None:
    """Check that the inputs in another order give the same value."""
    if ORDER_FREE in case.criterion.promises:
        turned = case.suite.take(torch.arange(case.suite.size - 1, -1, -1))
        _same(_value(case.criterion, turned), _value(case.criterion, case.suite), "the value in reverse order")


def law_split_free(case: LawCase) -> None:
    """Check that the same inputs in batches of 1 or 3 give the same value, or state, as all at once."""
    if SPLIT_FREE not in case.criterion.promises:
        assert case.criterion.waits != "joined", "batches are joined without the promise that this follows from"
        return
    whole = _value(case.criterion, case.suite)
    for size in (1, 3):
        state = case.criterion.init(case.suite.layout)
        for start in range(0, case.suite.size, size):
            state = case.criterion.observe(state, case.suite.take(slice(start, start + size)))
        _same(case.criterion.value(state), whole, f"the value in batches of {size}")
        if case.criterion.waits == "joined":
            at_once = case.criterion.observe(case.criterion.init(case.suite.layout), case.suite)
            _unchanged(state, at_once, f"batches of {size} leave another state")


def law_merge_exact(case: LawCase) -> None:
    """Check that two halves measured apart and merged give the value, and the gains, of the whole."""
    if MERGE_EXACT not in case.criterion.promises:
        return
    criterion, half = case.criterion, case.suite.size // 2
    empty = criterion.init(case.suite.layout)
    left = criterion.observe(empty, case.suite.take(slice(0, half)))
    right = criterion.observe(empty, case.suite.take(slice(half, case.suite.size)))
    whole = criterion.observe(empty, case.suite)
    kept = _copy(left), _copy(right)
    merged = criterion.merge(left, right)
    scale = float(criterion.value(whole).abs())
    _same(criterion.value(merged), criterion.value(whole), "the merged value")
    _same(criterion.gain(merged, case.candidates), criterion.gain(whole, case.candidates), "gains after merging", scale)
    assert int(merged.counts[VALID]) == int(whole.counts[VALID]), "merging miscounts the inputs"
    _unchanged(left, kept[0], "merge changed its first state")
    _unchanged(right, kept[1], "merge changed its second state")
    given_up = criterion.merge_in(left, right)
    _same(criterion.value(given_up), criterion.value(merged), "the value merged in place")
    _unchanged(right, kept[1], "merge_in changed its second state")


def law_a_duplicate_adds_nothing(case: LawCase) -> None:
    """Check that inputs seen before have no gain and change no value."""
    if DUPLICATE_FREE not in case.criterion.promises:
        return
    criterion = case.criterion
    state = criterion.observe(criterion.init(case.suite.layout), case.suite)
    again = criterion.observe(state, case.suite)
    _same(criterion.value(again), criterion.value(state), "the value after every input came twice")
    assert not criterion.gain(state, case.suite).any(), "an input seen before has a gain"


def law_submodular(case: LawCase) -> None:
    """Check that no input gains more on a suite than on a part of it."""
    if SUBMODULAR not in case.criterion.promises:
        return
    criterion = case.criterion
    state = criterion.init(case.suite.layout)
    before = criterion.gain(state, case.candidates)
    for start in range(0, case.suite.size, 3):
        state = criterion.observe(state, case.suite.take(slice(start, start + 3)))
        gains = criterion.gain(state, case.candidates)
        assert bool((gains <= before + 1e-12 * before.abs()).all()), f"gains rose from {before} to {gains}"
        before = gains


def law_saved_coverage_goes_on(case: LawCase) -> None:
    """Check that a coverage saved to a file and loaded has the same value and the same next gain."""
    from neuralcov.coverage.coverage import Coverage

    criterion = type(case.criterion)(**case.criterion.parameters)
    coverage = Coverage.of_layers(case.suite.layout.widths, [criterion])
    if criterion.learns:
        coverage.calibrate(activations=case.training)
    coverage.update(activations=case.suite)
    if not int(coverage.states[0].counts[VALID]):
        return  # a coverage that could place none of its inputs says so when it is saved
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        state, learnt = Path(folder) / "state.ncov", Path(folder) / "training.ncal"
        coverage.save(state)
        if criterion.learns:
            coverage.save_calibration(learnt)
        again = Coverage.load(state, calibration=learnt if criterion.learns else None)
    assert again.values(warn=False) == coverage.values(warn=False), "the value after saving and loading"
    ours = coverage.gain(activations=case.candidates)[criterion.name]
    _same(again.gain(activations=case.candidates)[criterion.name], ours, "the gain after saving and loading")


LAWS: tuple[Law, ...] = (
    *(value for name, value in list(globals().items()) if name.startswith("law_") and callable(value)),
    admitting.law_admitting_is_judging_and_observing,
    admitting.law_exclusions_are_what_observe_excludes,
    admitting.law_first_shown_is_what_inputs_show_one_by_one,
    keeping.law_donating_writes_to_nothing_else,
    keeping.law_kept_states_stay,
)


def devices_law(device: torch.device | str) -> Law:
    """Return the law that value and gains on a device are those on the CPU."""

    def law_devices_agree(case: LawCase) -> None:
        _devices_agree(case, device)

    return law_devices_agree


def _devices_agree(case: LawCase, device: torch.device | str) -> None:
    uncalibrated = type(case.criterion)(**case.criterion.parameters)
    criterion = calibrated(uncalibrated, moved(case.training, device))
    there = moved(case.suite, device)
    state = criterion.observe(criterion.init(there.layout), there)
    _same(criterion.value(state).cpu(), _value(case.criterion, case.suite), f"the value on {device}")
    here = case.criterion.observe(case.criterion.init(case.suite.layout), case.suite)
    gains = criterion.gain(state, moved(case.candidates, device)).cpu()
    _same(gains, case.criterion.gain(here, case.candidates), f"gains on {device}", float(criterion.value(state).abs()))


def _value(criterion: Criterion[Any], batch: Activations) -> Tensor:
    return criterion.value(criterion.observe(criterion.init(batch.layout), batch))
