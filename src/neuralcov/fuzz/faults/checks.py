"""What makes a kept mutant a fault: a wrong class, a second model that disagrees, checks of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError
from neuralcov.fuzz.campaign.log import DISAGREEMENT, EXCEPTION, KINDS, MISPREDICTION, TIME_OUT
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.search.runner import Failure, RunResult, finite_rows, in_halves, take_rows
from neuralcov.tap.inputs import call, to_device
from neuralcov.tap.outputs import checked_classes, predicted_classes


@dataclass(frozen=True, eq=False)
class MutantBatch:
    """Mutants and their origins, as a check of the user's own sees them.

    Args:
        inputs: the mutants, opened: floats in [0, 1] or tokens.
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
    """A second model that should agree with the first.

    Args:
        model: takes what ``preprocess`` gives.
        predict: from its output to one class per input, where the usual reading does not fit.
    """

    model: nn.Module
    predict: Callable[[Any], Any] | None = None

    def classes(self, ready: Any, size: int, device: torch.device) -> Tensor:
        """The classes it predicts, −1 where its output is not finite, on the device the inputs are on."""
        parameter = next(self.model.parameters(), None)
        place = device if parameter is None else parameter.device
        output = call(self.model, to_device(ready, place))
        found = predicted_classes(output, size) if self.predict is None else checked_classes(self.predict(output), size)
        finite = finite_rows(output, size).to(found.device)
        return found.masked_fill(~finite, -1).to(device)


class FaultChecker:
    """Says which kept mutants are faults.

    Args:
        space: where inputs live.
        preprocess: from opened inputs to what the models take.
        labels: by root input, the class it should have, −1 where unknown.
        predictions: by root input, the class the model gives it, −1 where it gives none.
        checks: by name, checks of the user's own.
        rival: a second model.
        batch: the most inputs per run of the second model.
        limit: seconds per run of it.
    """

    def __init__(
        self,
        space: InputFormat,
        preprocess: Callable[[Tensor], Any],
        labels: np.ndarray,
        predictions: np.ndarray,
        *,
        checks: Mapping[str, Check],
        rival: SecondModel | None,
        batch: int,
        limit: float | None,
    ) -> None:
        self.kinds = (*KINDS, *checks)
        self._space, self._preprocess = space, preprocess
        self._labels = labels
        self._right = (predictions >= 0) & (predictions == labels)
        self._predictions = predictions
        self._checks = dict(checks)
        self._rival, self._batch, self._limit = rival, batch, limit
        self._agreed = np.zeros(len(labels), dtype=bool)
        # Roots on which the second model itself fails say nothing about their mutants.
        self._ran = np.ones(len(labels), dtype=bool)
        self._origins: Any = None

    def learn(self, roots: Tensor, ran: RunResult) -> None:
        """See what the models make of the root inputs."""
        if self._checks:
            self._origins = gathered(ran, np.arange(len(roots)))
        if self._rival is not None:
            classes, failures = self._rivals(roots)
            self._agreed = (classes >= 0) & (classes == self._predictions)
            self._ran[list(failures)] = False

    def judge(
        self, mutants: Tensor, roots: np.ndarray, origins: Tensor, predictions: np.ndarray, output: Any
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Which kinds of fault each kept mutant shows, as bits, and what the second model threw, by row."""
        kinds = np.zeros(len(mutants), dtype=np.int32)
        messages: dict[int, str] = {}
        if not len(mutants):
            return kinds, messages
        wrong = self._right[roots] & (predictions >= 0) & (predictions != self._labels[roots])
        kinds |= wrong.astype(np.int32) << MISPREDICTION
        if self._rival is not None:
            classes, failures = self._rivals(mutants)
            ran = ~np.isin(np.arange(len(mutants)), list(failures))
            differs = self._agreed[roots] & (predictions >= 0) & ran & (classes != predictions)
            kinds |= differs.astype(np.int32) << DISAGREEMENT
            for row, failure in failures.items():
                if self._ran[roots[row]]:
                    kinds[row] |= 1 << (TIME_OUT if failure.timed_out else EXCEPTION)
                    messages[row] = f"second model: {failure.message}"
        for bit, (name, check) in enumerate(self._checks.items(), len(KINDS)):
            found = self._ask(name, check, mutants, roots, origins, output)
            kinds |= found.astype(np.int32) << bit
        return kinds, messages

    def _ask(
        self, name: str, check: Check, mutants: Tensor, roots: np.ndarray, origins: Tensor, output: Any
    ) -> np.ndarray:
        where = torch.from_numpy(roots).to(mutants.device)
        known = bool((self._labels[roots] >= 0).all())
        labels = torch.from_numpy(self._labels[roots]).to(mutants.device) if known else None
        case = MutantBatch(
            inputs=self._space.decode(mutants),
            origins=self._space.decode(origins),
            output=output,
            origin_output=take_rows(self._origins, where, len(self._labels)),
            labels=labels,
        )
        with torch.no_grad():
            found = torch.as_tensor(check(case))
        if found.shape != (len(mutants),) or found.dtype != torch.bool:
            raise InputError(
                f"the check {name!r} returned type {found.dtype} and shape {tuple(found.shape)}: expected "
                f"{len(mutants)} booleans, true for a fault"
            )
        return np.asarray(found.cpu().numpy())

    def _rivals(self, stored: Tensor) -> tuple[np.ndarray, dict[int, Failure]]:
        rival = self._rival
        assert rival is not None

        def once(rows: slice) -> Tensor:
            ready = self._preprocess(self._space.decode(stored[rows]))
            with torch.no_grad():
                return rival.classes(ready, rows.stop - rows.start, stored.device)

        parts, failures = in_halves(once, len(stored), self._batch, self._limit, stored.device)
        classes = np.full(len(stored), -1, dtype=np.int64)
        for rows, found in parts:
            classes[rows] = found.cpu().numpy()
        return classes, failures


def gathered(ran: RunResult, rows: np.ndarray) -> Any:
    """The outputs of some of the inputs that were run, as one; inputs without a result repeat the first."""
    if not ran.outputs:
        return None
    sizes = [part.stop - part.start for part, _ in ran.outputs]
    whole = _together([output for _, output in ran.outputs], sizes)
    place = {int(row): index for index, row in enumerate(ran.rows)}
    order = torch.tensor([place.get(int(row), 0) for row in rows], dtype=torch.int64)
    return take_rows(whole, order, len(ran.rows))


def named_checks(checks: Check | Sequence[Check] | Mapping[str, Check]) -> dict[str, Check]:
    """Checks by name, by default that of the function."""
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
    taken = sorted(set(found) & set(KINDS))
    if taken or len(found) > 24:
        raise InputError(f"checks named {taken or len(found)}: expected at most 24, called otherwise than {KINDS}")
    return found


def _together(values: list[Any], sizes: list[int]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(values) if first.dim() and first.shape[0] == sizes[0] else first
    if isinstance(first, Mapping):
        return {name: _together([value[name] for value in values], sizes) for name in first}
    if isinstance(first, (tuple, list)):
        return tuple(_together(list(parts), sizes) for parts in zip(*values, strict=True))
    logits = getattr(first, "logits", None)
    return _together([value.logits for value in values], sizes) if isinstance(logits, Tensor) else first
