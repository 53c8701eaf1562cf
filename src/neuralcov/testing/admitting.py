"""The laws of admission: who is admitted, who is excluded, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from neuralcov.core.activations import Activations
from neuralcov.core.counts import VALID
from neuralcov.core.criterion import Criterion, State
from neuralcov.testing.cases import LawCase, copied, of_unknown_classes, same, unchanged, with_not_finite


def law_admitting_is_judging_and_observing(case: LawCase) -> None:
    """Check that inputs admitted in order are those that gain more than the limit on the state they meet.

    If nothing is admitted, nothing but the counts of excluded inputs changes.
    """
    criterion = case.criterion
    empty = criterion.init(case.suite.layout)
    broken, strange = with_not_finite(case.suite, every=2), of_unknown_classes(case.candidates)
    batch = Activations.cat([case.candidates, broken.take(slice(0, 6)), strange.take(slice(0, 2)), case.candidates])
    alone = [criterion.observe(empty, batch.take(slice(i, i + 1))).counts for i in range(batch.size)]
    excluded = [int(counts[VALID]) == 0 for counts in alone]
    for state, limits in ((empty, (-0.5, 0.0)), (criterion.observe(empty, case.suite), (-0.5, 0.0, 0.05))):
        kept = copied(state)
        counts = state.counts + sum(count for count, out in zip(alone, excluded, strict=True) if out)
        for min_gain in limits:
            admitted, after = criterion.admit(state, batch, min_gain=min_gain)
            expected, plain = _admitted_by_definition(criterion, state, batch, excluded, min_gain)
            assert admitted.tolist() == expected, f"admitted {admitted.tolist()} above {min_gain}, expected {expected}"
            same(criterion.value(after), criterion.value(plain), "the value after admitting")
            right = [int(state.counts[VALID]) + sum(expected), *counts[1:].tolist()]
            assert after.counts.tolist() == right, f"admitting counts {after.counts.tolist()}, expected {right}"
        admitted, after = criterion.admit(state, batch, min_gain=torch.inf)
        assert not admitted.any(), "an input gains more than infinity"
        assert after.counts.tolist() == counts.tolist(), "admitting nothing miscounts excluded inputs"
        unchanged(replace(after, counts=state.counts), kept, "admitting nothing changed the state")
        unchanged(state, kept, "admit changed the state it was given")


def _admitted_by_definition(
    criterion: Criterion[Any], state: State, batch: Activations, excluded: list[bool], min_gain: float
) -> tuple[list[bool], State]:
    """Judge and observe one input at a time, on the state that the ones before it leave."""
    admitted = []
    for index, out in enumerate(excluded):
        alone = batch.take(slice(index, index + 1))
        admitted.append(not out and float(criterion.gain(state, alone)) > min_gain)
        state = criterion.observe(state, alone) if admitted[-1] else state
    return admitted, state


def law_exclusions_are_what_observe_excludes(case: LawCase) -> None:
    """Check that ``exclusions`` says of every input what ``observe`` counts it as."""
    criterion = case.criterion
    empty = criterion.init(case.suite.layout)
    batch = Activations.cat([with_not_finite(case.suite, every=3), of_unknown_classes(case.candidates)])
    for index, reason in enumerate(criterion.exclusions(batch).tolist()):
        counts = criterion.observe(empty, batch.take(slice(index, index + 1))).counts.tolist()
        assert counts[reason] == 1 == sum(counts), f"input {index} is excluded as {reason}, but counted as {counts}"


def law_first_shown_is_what_inputs_show_one_by_one(case: LawCase) -> None:
    """Check that an input is the first to show what nothing before it in the batch, nor in the state, has shown."""
    criterion, batch = case.criterion, Activations.cat([case.candidates, case.candidates])
    state = criterion.observe(criterion.init(batch.layout), case.suite)
    shown = criterion.first_shown(state, batch)
    if shown is None:
        return
    assert shown.shape == (batch.size,), f"first_shown has shape {tuple(shown.shape)}"
    assert not shown[case.candidates.size :].any(), "an input seen before shows something first"
    for index in range(case.candidates.size):
        alone = batch.take(slice(index, index + 1))
        found = criterion.first_shown(state, alone)
        assert found is not None, "first_shown counts whole batches and no single input"
        assert int(found) == int(shown[index]), f"input {index} shows {int(shown[index])} first, alone {int(found)}"
        assert int(found) or not float(criterion.gain(state, alone)) > 0, f"input {index} gains and shows nothing first"
        state = criterion.observe(state, alone)
