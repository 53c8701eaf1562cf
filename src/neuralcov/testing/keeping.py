"""The laws of kept states: whatever a coverage does next, snapshots, copies and merged coverages stay as they were."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import torch

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import State
from neuralcov.core.errors import CoverageWarning
from neuralcov.testing.cases import Case, copied, equal_bits, same, unchanged, with_not_finite

# A coverage comes after testing in the order of imports, and so is imported where it is needed.
AnyCoverage = Any
Action = Callable[[AnyCoverage, Case], None]
Keeper = Callable[[AnyCoverage, Case], Callable[[], AnyCoverage]]
_PAIRS = 5


def law_donating_writes_to_nothing_else(case: Case) -> None:
    """Check that a donated observation writes neither to the batch nor to another empty state."""
    criterion, batch = case.criterion, case.suite
    before = {name: outputs.clone() for name, outputs in batch.layers.items()}
    state = criterion.init(batch.layout)
    empty = copied(state)
    for _ in range(2):
        state = criterion.observe(state, batch, donate=True)
    unchanged(criterion.init(batch.layout), empty, "a donated observation changed what init gives")
    for name, outputs in before.items():
        assert equal_bits(batch.layers[name], outputs), f"a donated observation changed the batch ({name})"


def law_kept_states_stay(case: Case) -> None:
    """Check that a kept state stays to the bit through every call that changes the coverage, and updates after it.

    The coverage itself goes on as if nobody had kept anything.
    """
    pairs = [(keeping, action) for keeping in KEEPERS for action in ACTIONS]
    # A few for each case, drawn by its content.
    draw = random.Random(int(case.suite.content_keys.sum()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        for keeping, action in draw.sample(pairs, _PAIRS):
            check_kept_state(case, keeping, action)


def check_kept_state(case: Case, keeping: str, action: str) -> None:
    """Check one way of keeping, by its name in ``KEEPERS``, against one call, by its name in ``ACTIONS``."""
    act, coverage, alone = ACTIONS[action], _measured(case), _measured(case)
    after_keeping = KEEPERS[keeping](coverage, case)
    # What keeping does to the coverage itself (merging something in) happens to the one nobody keeps as well.
    KEEPERS[keeping](alone, case)
    kept = _states(after_keeping())
    before = tuple(copied(state) for state in kept)
    for step in (act, _update, _update_wildly):
        step(coverage, case)
        step(alone, case)
    complaint = f"{action} after {keeping} changed what was kept"
    for state, expected in zip(_states(after_keeping()), before, strict=True):
        unchanged(state, expected, complaint)
    for state, expected in zip(kept, before, strict=True):
        unchanged(state, expected, complaint)
    for found, expected_value in zip(*(each.values(warn=False).values() for each in (coverage, alone)), strict=True):
        same(torch.tensor(found), torch.tensor(expected_value), f"the value after {keeping} and {action}")


def _measured(case: Case) -> AnyCoverage:
    coverage = _empty(case)
    coverage.update(activations=case.suite)
    coverage.update(activations=case.candidates)
    return coverage


def _empty(case: Case) -> AnyCoverage:
    from neuralcov.coverage.coverage import Coverage

    # Without keys, so that inputs may be merged twice.
    return Coverage.of_layers(case.suite.layout.widths, [case.criterion], keys="none")


def _states(coverage: AnyCoverage) -> tuple[State, ...]:
    states: tuple[State, ...] = coverage.states
    return states


# Ways of keeping a state. Each returns how to get at a coverage that has what was kept.


def _snapshot(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    taken = coverage.snapshot()

    def restored() -> AnyCoverage:
        again = _empty(case)
        again.restore(taken)
        return again

    return restored


def _restored(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    restored = _snapshot(coverage, case)
    coverage.restore(coverage.snapshot())
    return restored


def _copy(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    twin = coverage + 0
    return lambda: twin


def _merged_into_nothing(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    other = _empty(case)
    other.merge(coverage)
    return lambda: other


def _merged_into_another(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    other = _empty(case)
    other.update(activations=_wild(case))
    other.merge(coverage)
    return lambda: other


def _merged_in(coverage: AnyCoverage, case: Case) -> Callable[[], AnyCoverage]:
    other = _empty(case)
    other.update(activations=_wild(case))
    coverage.merge(other)
    return lambda: other


KEEPERS: dict[str, Keeper] = {
    "a snapshot": _snapshot,
    "a snapshot and its restoring": _restored,
    "a copy": _copy,
    "merging it into an empty coverage": _merged_into_nothing,
    "merging it into another coverage": _merged_into_another,
    "merging another coverage in": _merged_in,
}


# Calls that change a coverage.


def _update(coverage: AnyCoverage, case: Case) -> None:
    coverage.update(activations=case.candidates)


def _update_wildly(coverage: AnyCoverage, case: Case) -> None:
    coverage.update(activations=_wild(case))


def _update_with_nothing(coverage: AnyCoverage, case: Case) -> None:
    coverage.update(activations=case.suite.take(slice(0, 0)))


def _update_with_what_is_excluded(coverage: AnyCoverage, case: Case) -> None:
    coverage.update(activations=with_not_finite(case.suite, every=1))


def _admitting(batch: Callable[[Case], Activations], min_gain: float) -> Action:
    def admit(coverage: AnyCoverage, case: Case) -> None:
        coverage.admit(activations=batch(case), min_gain=min_gain)

    return admit


def _commit(coverage: AnyCoverage, case: Case) -> None:
    coverage.propose(activations=_wild(case)).commit()


def _commit_nothing(coverage: AnyCoverage, case: Case) -> None:
    coverage.propose(activations=_wild(case)).commit([])


def _restore(coverage: AnyCoverage, case: Case) -> None:
    before = coverage.snapshot()
    coverage.update(activations=_wild(case))
    coverage.restore(before)


def _reset(coverage: AnyCoverage, case: Case) -> None:
    coverage.reset()


def _merge(coverage: AnyCoverage, case: Case) -> None:
    other = _empty(case)
    other.update(activations=_wild(case))
    coverage.merge(other)


def _merge_nothing(coverage: AnyCoverage, case: Case) -> None:
    other = _empty(case)
    other.update(activations=case.suite.take(slice(0, 0)))
    coverage.merge(other)


def _wild(case: Case) -> Activations:
    """Make inputs far out and the other way round, so that observing them changes nearly every state."""
    batch = case.candidates
    layers = {name: 3 * outputs.flip(1) + 1 for name, outputs in batch.layers.items()}
    relevance = {name: values.flip(1) for name, values in (batch.relevance or {}).items()}
    return Activations(layers, batch.labels, batch.predictions, relevance, batch.present)


ACTIONS: dict[str, Action] = {
    "update": _update,
    "an update with an empty batch": _update_with_nothing,
    "an update with excluded inputs": _update_with_what_is_excluded,
    "admit": _admitting(_wild, 0.0),
    "admit of inputs seen before": _admitting(lambda case: case.suite, 0.0),
    "admit with a high limit": _admitting(_wild, 1e9),
    "admit with a low limit": _admitting(_wild, 0.05),
    "admit with a negative limit": _admitting(lambda case: case.suite, -1e9),
    "admit of excluded inputs": _admitting(lambda case: with_not_finite(case.suite, every=1), 0.0),
    "admit of an empty batch": _admitting(lambda case: case.suite.take(slice(0, 0)), 0.0),
    "commit": _commit,
    "commit of nothing": _commit_nothing,
    "restore": _restore,
    "reset": _reset,
    "merge": _merge,
    "merge of an empty coverage": _merge_nothing,
}
