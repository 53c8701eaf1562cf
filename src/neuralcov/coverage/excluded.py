"""Which inputs criteria excluded: the names of the first few, by criterion and reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID
from neuralcov.core.criterion import Criterion
from neuralcov.core.input_names import Column, Plain, checked_ids
from neuralcov.core.shapes import Bool, Int

# So many names are kept of each criterion and reason.
_KEPT = 10
# What was excluded stays on the device until so many inputs have come together.
_ROWS_AT_ONCE = 1 << 16
_REASONS = {"not finite": NOT_FINITE, "not placeable": NOT_PLACEABLE}


@dataclass(frozen=True, eq=False)
class _Pending:
    """Hold one batch that nobody has looked at yet: which inputs are finite, and what further criteria excluded."""

    names: Column
    finite: Bool[Tensor, "batch"] | None
    exclusions: Mapping[str, Int[Tensor, "batch"]]


class ExcludedInputs:
    """Remember the names of the first inputs that each criterion excluded."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, int], tuple[Plain, ...]] = {}
        self._pending: list[_Pending] = []
        self._plain: tuple[str, ...] = ()
        self._rows = 0

    def copy(self) -> Self:
        """Return a copy that goes its own way."""
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        twin._names, twin._pending = dict(self._names), list(self._pending)
        return twin

    def note(
        self,
        criteria: Sequence[Criterion[Any]],
        batch: Activations,
        position: int,
        finite: Bool[Tensor, "batch"] | None = None,
    ) -> None:
        """Note what criteria excluded of a batch that they have observed. Nothing waits for the device.

        Args:
            criteria: those that observed the batch.
            batch: the batch.
            position: of its first input in the run, for inputs without names.
            finite: which inputs are finite, where that was found elsewhere.
        """
        self._plain = tuple(criterion.name for criterion in criteria if not _asks(criterion))
        looking_is_free = batch.device.type == "cpu"
        if self._plain and finite is None and not (looking_is_free and not int(batch.input_counts[NOT_FINITE])):
            finite = batch.finite
        exclusions = {c.name: c.exclusions(batch) for c in criteria if _asks(c)}
        if looking_is_free:
            exclusions = {name: reasons for name, reasons in exclusions.items() if bool(reasons.any())}
        if finite is None and not exclusions:
            return
        names = range(position, position + batch.size) if batch.ids is None else batch.ids
        self._pending.append(_Pending(names, finite, exclusions))
        self._rows += batch.size
        if self._rows >= _ROWS_AT_ONCE:
            self._settle()

    def of(self, criterion: str, reason: int) -> tuple[Plain, ...]:
        """Return the names of the first inputs that a criterion excluded for a reason."""
        self._settle()
        return self._names.get((criterion, reason), ())

    def merge(self, other: ExcludedInputs) -> None:
        """Take in what another remembers."""
        self._settle()
        other._settle()
        for key, names in other._names.items():
            self._names[key] = (*self._names.get(key, ()), *names)[:_KEPT]

    def to_json(self) -> dict[str, dict[str, list[Plain]]]:
        """Return the names as plain data, by criterion and reason."""
        self._settle()
        found: dict[str, dict[str, list[Plain]]] = {}
        for word, reason in _REASONS.items():
            for (criterion, why), names in self._names.items():
                if why == reason:
                    found.setdefault(criterion, {})[word] = list(names)
        return found

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what a file holds."""
        found = cls()
        for criterion, reasons in content.items():
            for word, names in reasons.items():
                found._names[str(criterion), _REASONS[word]] = checked_ids(names, len(names)) or ()
        return found

    def _settle(self) -> None:
        """Look up who was excluded; waits for the device once for each criterion."""
        pending, self._pending, self._rows = self._pending, [], 0
        finite = [
            (part.names, torch.where(part.finite, VALID, NOT_FINITE)) for part in pending if part.finite is not None
        ]
        for criterion in self._plain if finite else ():
            self._add(criterion, finite)
        for criterion in dict.fromkeys(name for part in pending for name in part.exclusions):
            mine = [part for part in pending if criterion in part.exclusions]
            self._add(criterion, [(part.names, part.exclusions[criterion]) for part in mine])

    def _add(self, criterion: str, batches: Sequence[tuple[Column, Int[Tensor, "batch"]]]) -> None:
        """Keep the names of the first excluded inputs of some batches, as far as there is room for them."""
        names = [names for names, _ in batches]
        ends = list(accumulate(len(some) for some in names))
        reasons = torch.cat([reasons.to(batches[0][1].device) for _, reasons in batches]).cpu()
        for reason in _REASONS.values():
            kept = self._names.get((criterion, reason), ())
            rows = (reasons == reason).nonzero()[: _KEPT - len(kept), 0].tolist()
            found = [(bisect_right(ends, row), row) for row in rows]
            if found:
                more = (names[batch][row - ends[batch]] for batch, row in found)  # counted from the batch's end
                self._names[criterion, reason] = (*kept, *more)


def _asks(criterion: Criterion[Any]) -> bool:
    """Return whether a criterion may exclude inputs with finite outputs, or looks at some layers only, and says so.

    The default of ``exclusions`` observes the batch to find out, which would double the cost of every update.
    """
    says_so = type(criterion).exclusions is not Criterion.exclusions
    return says_so and (bool(criterion.needs) or not criterion.fixed_size)
