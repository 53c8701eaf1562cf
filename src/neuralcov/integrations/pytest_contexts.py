"""Which test adds what: the values of each test alone, its gain over those before it, and what is lost without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from neuralcov.core.criterion import MERGE_EXACT
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.slices import without_each
from neuralcov.integrations.pytest_models import TestState
from neuralcov.results.input_table import InputTable

Numbers = dict[str, list[float | None]]


@dataclass(frozen=True)
class Contexts:
    """Hold what each test that ran the model covers, in the order of collection.

    Args:
        tests: their names.
        inputs: of each test.
        alone: by criterion, the value of each test alone.
        gain: by criterion, by how much each test raises the value of those before it; ``None`` where states of tests
            are not merged exactly.
        lost: by criterion, by how much all tests are above all but each; ``None`` likewise.
    """

    tests: tuple[str, ...]
    inputs: tuple[int, ...]
    alone: Numbers
    gain: Numbers
    lost: Numbers

    def table(self) -> InputTable:
        """Return a table with a row for each test."""
        columns: dict[str, Sequence[object]] = {"id": self.tests, "inputs": self.inputs}
        for name in self.alone:
            columns |= {f"{name}.alone": self.alone[name], f"{name}.gain": self.gain[name]}
            columns[f"{name}.lost"] = self.lost[name]
        return InputTable(columns)


def compare_tests(states: Sequence[TestState]) -> Contexts:
    """Return what each test covers. A test that ran twice counts once, with all it observed."""
    coverages: dict[int, Coverage] = {}
    names: dict[int, str] = {}
    for test in sorted(states, key=lambda test: test.place):
        found = Coverage.from_bytes(test.state)
        if test.place in coverages:
            coverages[test.place].merge(found, overlap="repeat")
        else:
            coverages[test.place], names[test.place] = found, test.name
    suites = list(coverages.values())
    alone: Numbers = {criterion.name: [] for criterion in suites[0].criteria}
    gain: Numbers = {name: [] for name in alone}
    lost: Numbers = {}
    total = suites[0].fork()
    before = dict.fromkeys(alone, 0.0)
    for number, suite in enumerate(suites):
        if number:
            total.merge(suite, overlap="repeat")
        now = total.values(warn=False)
        for name, value in suite.values(warn=False).items():
            alone[name].append(_known(value))
            gain[name].append(_known(now[name] - before[name]))
        before = now
    for place, criterion in enumerate(suites[0].criteria):
        if MERGE_EXACT not in criterion.promises:
            lost[criterion.name] = gain[criterion.name] = [None] * len(suites)
            continue
        states_of_tests = [suite.states[place] for suite in suites]
        rest = torch.stack(list(without_each(criterion, states_of_tests, None, total.layout)))
        lost[criterion.name] = [_known(value) for value in (criterion.value(total.states[place]) - rest).tolist()]
    return Contexts(tuple(names.values()), tuple(suite.inputs for suite in suites), alone, gain, lost)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
