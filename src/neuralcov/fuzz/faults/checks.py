"""What makes a mutant a fault: a wrong class, a second model that disagrees, checks of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov.core.trees import finite_rows, plain_output, take_rows
from neuralcov.fuzz.campaign.log import DISAGREEMENT, EXCEPTION, FAULT_TYPES, MISPREDICTION, TIME_OUT
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.search.runner import Failure, RunResult, in_halves
from neuralcov.tap.inputs import call, to_device
from neuralcov.tap.outputs import checked_classes, predicted_classes

# Bits that are left for checks of the user's own.
_MOST_CHECKS = 24


@dataclass(frozen=True, eq=False)
class MutantBatch:
    """Show mutants and their origins to a check of the user's own.

    Args:
        inputs: the mutants, decoded: floats in [0, 1] or tokens.
        origins: their root inputs.
        output: what the model gave for the mutants.
        origin_output: what it gave for the root inputs.
        labels: the classes they should have, where known.
    """

    inputs: Tensor
    origins: Tensor
    output: Any
    origin_output: Any
    labels: Tensor | None


# Which of the mutants are faults, (batch,).
Check = Callable[[MutantBatch], Tensor]


@dataclass(frozen=True, eq=False)
class SecondModel:
    """Hold a second model that should agree with the first.

    Args:
        model: takes what ``preprocess`` gives.
        predict: from its output to one class per input, where the usual reading does not fit.
    """

    model: nn.Module
    predict: Callable[[Any], Any] | None = None

    def classes(self, ready: Any, size: int, device: torch.device) -> Tensor:
        """Return the classes it predicts, −1 where its output is not finite, on the device the inputs are on."""
        parameter = next(self.model.parameters(), None)
        place = device if parameter is None else parameter.device
        output = call(self.model, to_device(ready, place))
        found = predicted_classes(output, size) if self.predict is None else checked_classes(self.predict(output), size)
        finite = finite_rows(plain_output(output), size).to(found.device)
        return found.masked_fill(~finite, -1).to(device)


class FaultChecker:
    """Tell which kept mutants are faults.

    Args:
        input_format: how inputs are stored.
        preprocess: from decoded inputs to what the models take.
        labels: by root input, the class it should have, −1 where unknown.
        predictions: by root input, the class the model gives it, −1 where it gives none.
        checks: by name, checks of the user's own.
        second_model: one that should agree.
        batch: the most inputs per run of the second model.
        limit: seconds per run of it.
        wrong_seeds: whether mutants of inputs that were wrong before any mutation count as mispredicted.
    """

    def __init__(
        self,
        input_format: InputFormat,
        preprocess: Callable[[Tensor], Any],
        labels: np.ndarray,
        predictions: np.ndarray,
        *,
        checks: Mapping[str, Check],
        second_model: SecondModel | None,
        batch: int,
        limit: float | None,
        wrong_seeds: bool = False,
    ) -> None:
        self.fault_types = (*FAULT_TYPES, *checks)
        self._input_format, self._preprocess = input_format, preprocess
        self._labels = labels
        self._right = (predictions >= 0) & (wrong_seeds | (predictions == labels)) & (labels >= 0)
        self._predictions = predictions
        self._checks = dict(checks)
        self._second_model, self._batch, self._limit = second_model, batch, limit
        self._agreed = np.zeros(len(labels), dtype=bool)
        # Roots on which the second model itself fails say nothing about their mutants.
        self._second_ran = np.ones(len(labels), dtype=bool)
        self._origin_outputs: Any = None

    def learn(self, roots: Tensor, result: RunResult) -> None:
        """Note what the models make of the root inputs."""
        if self._checks:
            self._origin_outputs = result.outputs_of(np.arange(len(roots)))
        if self._second_model is not None:
            classes, failures = self._run_second(self._second_model, roots)
            self._agreed = (classes >= 0) & (classes == self._predictions)
            self._second_ran[list(failures)] = False

    def names(self, bits: int) -> tuple[str, ...]:
        """Return the fault types that bits stand for."""
        return tuple(name for bit, name in enumerate(self.fault_types) if bits >> bit & 1)

    def check(
        self, mutants: Tensor, roots: np.ndarray, origins: Tensor, predictions: np.ndarray, output: Any
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Return which fault types each kept mutant shows, as bits, and what the second model threw, by row."""
        fault_types = np.zeros(len(mutants), dtype=np.int32)
        messages: dict[int, str] = {}
        if not len(mutants):
            return fault_types, messages
        wrong = self._right[roots] & (predictions >= 0) & (predictions != self._labels[roots])
        fault_types |= wrong.astype(np.int32) << MISPREDICTION
        if self._second_model is not None:
            classes, failures = self._run_second(self._second_model, mutants)
            ran = ~np.isin(np.arange(len(mutants)), list(failures))
            differs = self._agreed[roots] & (predictions >= 0) & ran & (classes != predictions)
            fault_types |= differs.astype(np.int32) << DISAGREEMENT
            for row, failure in failures.items():
                if self._second_ran[roots[row]]:
                    fault_types[row] |= 1 << (TIME_OUT if failure.timed_out else EXCEPTION)
                    messages[row] = f"second model: {failure.message}"
        for bit, (name, check) in enumerate(self._checks.items(), len(FAULT_TYPES)):
            found = self._ask(name, check, mutants, roots, origins, output)
            fault_types |= found.astype(np.int32) << bit
        return fault_types, messages

    def _ask(
        self, name: str, check: Check, mutants: Tensor, roots: np.ndarray, origins: Tensor, output: Any
    ) -> np.ndarray:
        where = torch.from_numpy(roots).to(mutants.device)
        known = bool((self._labels[roots] >= 0).all())
        labels = torch.from_numpy(self._labels[roots]).to(mutants.device) if known else None
        batch = MutantBatch(
            inputs=self._input_format.decode(mutants),
            origins=self._input_format.decode(origins),
            output=output,
            origin_output=take_rows(self._origin_outputs, where, len(self._labels)),
            labels=labels,
        )
        with torch.no_grad():
            found = torch.as_tensor(check(batch))
        if found.shape != (len(mutants),) or found.dtype != torch.bool:
            raise InputError(
                f"the check {name!r} returned type {found.dtype} and shape {tuple(found.shape)}: expected "
                f"{len(mutants)} booleans, true for a fault"
            )
        return np.asarray(found.cpu().numpy())

    def _run_second(self, second: SecondModel, stored: Tensor) -> tuple[np.ndarray, dict[int, Failure]]:
        """Return the classes the second model gives, −1 for none, and its failures by row."""

        def once(rows: slice) -> Tensor:
            ready = self._preprocess(self._input_format.decode(stored[rows]))
            with torch.no_grad():
                return second.classes(ready, rows.stop - rows.start, stored.device)

        parts, failures = in_halves(once, len(stored), self._batch, self._limit, stored.device)
        classes = np.full(len(stored), -1, dtype=np.int64)
        for rows, found in parts:
            classes[rows] = found.cpu().numpy()
        return classes, failures


def named_checks(checks: Check | Sequence[Check] | Mapping[str, Check]) -> dict[str, Check]:
    """Return checks by name, by default that of the function."""
    if callable(checks):
        checks = [checks]
    if isinstance(checks, Mapping):
        found = dict(checks)
    else:
        found = {getattr(check, "__name__", f"check {number}"): check for number, check in enumerate(checks)}
        if len(found) < len(checks):
            raise InputError(
                f"checks of the same name {next(iter(found))!r}: pass them as a mapping of names to checks"
            )
    reserved = sorted(set(found) & set(FAULT_TYPES))
    if reserved or len(found) > _MOST_CHECKS:
        raise InputError(
            f"checks named {reserved or len(found)}: expected at most {_MOST_CHECKS}, called otherwise than "
            f"{FAULT_TYPES}"
        )
    return found
