"""Show that the installed package computes what it says: laws and brute force, on fixed cases, for each criterion."""

from __future__ import annotations

import hashlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from neuralcov.core.activations import Activations
from neuralcov.core.container import canonical
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning
from neuralcov.core.registry import stored_class
from neuralcov.coverage.coverage import Coverage
from neuralcov.testing import oracles
from neuralcov.testing.cases import LawCase, random_case
from neuralcov.testing.laws import LAWS, devices_law
from neuralcov.testing.oracles import Oracle, Suite, Undecided

CONTENT, SCHEMA = "selftest", 1
BRUTE_FORCE = "brute force"
# Where values are no counts, the last digits are left to rounding.
_RELATIVE = 1e-6


@dataclass(frozen=True)
class Trial:
    """Hold what one check of one criterion gave.

    Args:
        check: the law, or ``brute force``.
        cases: on how many cases it was tried.
        undecided: of these, those where rounding decides and brute force says nothing.
        failure: what went wrong in the first case that failed; ``None`` if none did.
    """

    check: str
    cases: int
    undecided: int = 0
    failure: str | None = None


@dataclass(frozen=True)
class Tested:
    """Hold all checks of one criterion; ``known`` tells whether it has a brute-force form."""

    name: str
    criterion: str
    definition: int
    trials: tuple[Trial, ...]
    known: bool
    seconds: float

    @property
    def failures(self) -> tuple[Trial, ...]:
        """The checks that failed."""
        return tuple(trial for trial in self.trials if trial.failure is not None)


def try_criterion(criterion: Criterion[Any], *, cases: int, device: str = "cpu") -> Tested:
    """Try every law and the brute-force form on a criterion.

    Args:
        criterion: uncalibrated.
        cases: how many for each law; brute force is tried on ten times as many.
        device: a second device whose results must agree with the CPU's.
    """
    begun = time.perf_counter()
    laws = [*LAWS, *([] if torch.device(device).type == "cpu" else [devices_law(device)])]
    trials = [_tried(law.__name__.removeprefix("law_").replace("_", " "), law, criterion, cases) for law in laws]
    oracle = find_oracle(criterion)
    if oracle is not None:
        trials.append(_forced(criterion, oracle, 10 * cases))
    return Tested(
        criterion.name,
        stored_class(type(criterion)),
        criterion.definition,
        tuple(trials),
        oracle is not None,
        time.perf_counter() - begun,
    )


def record_of(tested: Sequence[Tested], made: str, software: dict[str, str]) -> dict[str, Any]:
    """Return the record of a self-test as plain data, with its own SHA-256, as evidence has it.

    Args:
        tested: all criteria.
        made: when, in UTC.
        software: versions.
    """
    content = {
        "neuralcov": CONTENT,
        "schema": SCHEMA,
        "made": made,
        "software": software,
        "passed": not any(each.failures for each in tested),
        "criteria": [{**asdict(each), "trials": [asdict(trial) for trial in each.trials]} for each in tested],
    }
    return {**content, "sha256": hashlib.sha256(canonical(content).encode()).hexdigest()}


def find_oracle(criterion: Criterion[Any]) -> type[Oracle] | None:
    """Return the brute-force form of a criterion of this package, ``None`` where it has none for these settings."""
    if criterion.parameters.get("clusters", 1) != 1:
        return None  # k-means has no form that is simpler than itself
    found: type[Oracle] | None = getattr(oracles, stored_class(type(criterion)), None)
    return found


def _tried(name: str, law: Callable[[LawCase], None], criterion: Criterion[Any], cases: int) -> Trial:
    for number in range(cases):
        failure = _failure(lambda number=number: law(random_case(criterion, number)))  # type: ignore[misc]
        if failure is not None:
            return Trial(name, number + 1, failure=f"case {number}: {failure}")
    return Trial(name, cases)


def _forced(criterion: Criterion[Any], oracle: type[Oracle], cases: int) -> Trial:
    undecided = 0
    for number in range(cases):
        try:
            failure = _failure(lambda number=number: _compare(criterion, oracle, number))  # type: ignore[misc]
        except Undecided:
            undecided += 1
            continue
        if failure is not None:
            return Trial(BRUTE_FORCE, number + 1, undecided, f"case {number}: {failure}")
    return Trial(BRUTE_FORCE, cases, undecided)


def _failure(attempt: Callable[[], None]) -> str | None:
    """Return what an attempt fails with: a law that does not hold, or any error, which is no less a failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoverageWarning)
            attempt()
    except Undecided:
        raise
    except Exception as error:
        return "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    return None


def _compare(criterion: Criterion[Any], oracle: type[Oracle], number: int) -> None:
    """Compare values on a random suite in two batches, alone and merged, with the brute-force form's."""
    training, first, second = _suites(number)
    theirs = oracle(training, **criterion.parameters)
    widths = {name: part.shape[1] for name, part in training.layers.items()}

    def observed(*batches: Suite) -> Coverage:
        coverage = Coverage.of_layers(widths, [criterion], keys="none")
        if criterion.learns:
            coverage.calibrate(activations=_activations(training))
        for batch in batches:
            coverage.update(activations=_activations(batch))
        return coverage

    one, other = observed(first), observed(second)
    expected = theirs.value([first]), theirs.value([first, second]), theirs.merged([first], [second])
    found = [_value(one), _value(observed(first, second))]
    one.merge(other)
    found.append(_value(one))
    for what, ours, right in zip(("one batch", "two batches", "two merged"), found, expected, strict=True):
        allowed = 1e-12 if theirs.exact else _RELATIVE * max(1.0, abs(right))
        assert abs(ours - right) <= allowed, f"the value of {what} is {ours}, by brute force {right}"


def _value(coverage: Coverage) -> float:
    return next(iter(coverage.values(warn=False).values()))


def _suites(number: int) -> Iterator[Suite]:
    """Yield training data and two batches: with ties every third time, and an input with NaN every other time."""
    rng = np.random.default_rng(number)
    widths = rng.integers(2, 7, rng.integers(2, 4))
    for size, spread in ((30, 1.0), (9, 1.3), (7, 1.6)):
        layers, relevance = {}, {}
        for index, width in enumerate(widths):
            values = spread * rng.standard_normal((size, width))
            # What float32 holds, so that both sides read the same numbers.
            layers[f"layer{index}"] = (
                np.round(2 * values) if number % 3 == 0 else values.astype(np.float32).astype(float)
            )
            relevance[f"layer{index}"] = rng.standard_normal((size, width)).astype(np.float32).astype(float)
        labels = np.arange(size) % 3
        predictions = np.where(rng.random(size) < 0.7, labels, rng.integers(0, 3, size))
        predictions[:3] = labels[:3]
        if number % 2 and size < 30:
            layers["layer0"][size // 2, 0] = np.nan
        yield Suite(layers, labels, predictions, relevance)


def _activations(suite: Suite) -> Activations:
    return Activations(
        {name: torch.from_numpy(part).float() for name, part in suite.layers.items()},
        labels=torch.from_numpy(suite.labels),
        predictions=torch.from_numpy(suite.predictions),
        relevance={name: torch.from_numpy(part).float() for name, part in suite.relevance.items()},
    )
