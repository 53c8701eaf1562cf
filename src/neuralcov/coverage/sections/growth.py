"""How values grow with a suite, noted on the way at doubling sizes, or rarefied from counts where a criterion can.

A value is read as a tensor and turned into a number at the end, so that nothing waits for the device. Where the number
of batches is known, the sizes are halves of the whole: the second half is then known exactly. Where it is not, they
double from the first batch. Criteria whose value is costly are read at a quarter, at half and at the
end only, and what that took is told.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from neuralcov.coverage.collection import CriterionCollection
from neuralcov.results.sections import GrowthCurve

# Below the whole suite, so many halves: the first size is a thousandth.
_HALVES = 10
_COSTLY_HALVES = 2
_RAREFIED_SIZES = 8


@dataclass(eq=False)
class _Noted:
    """Hold the values of one criterion at some sizes, and the time that reading them took."""

    sizes: list[int] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0


class GrowthRecorder:
    """Note values while a suite is observed.

    Args:
        collection: the criteria; nothing was observed yet.
        batches: how many there will be, ``None`` if that is not known.
    """

    def __init__(self, collection: CriterionCollection, batches: int | None) -> None:
        self._collection = collection
        self._noted = {c.name: _Noted() for c in collection.criteria if not c.rarefies}
        self._batches = 0
        known = batches if batches is not None and batches > 1 else None
        self._points = None if known is None else _halves(known, _HALVES)
        self._costly_points = frozenset() if known is None else _halves(known, _COSTLY_HALVES)
        self._next, self._begun = 1, time.perf_counter()

    def after_batch(self) -> None:
        """Note values if enough batches have been observed since the last time."""
        self._batches += 1
        if self._points is None:
            due = self._batches == self._next
            self._next *= 2 if due else 1
        else:
            due = self._batches in self._points
        if due and self._noted:
            self._note(whole=False)

    def _note(self, *, whole: bool) -> None:
        collection, costly_due = self._collection, whole or self._batches in self._costly_points
        # What states count lies on the device, and would have to be waited for.
        inputs = collection.inputs if whole or collection.seen is None else collection.seen.offered
        for criterion, state in zip(collection.criteria, collection.states, strict=True):
            noted = self._noted.get(criterion.name)
            if noted is None or (criterion.costly_value and not costly_due) or noted.sizes[-1:] == [inputs]:
                continue
            begun = time.perf_counter()
            noted.values.append(criterion.value(state))
            noted.seconds += time.perf_counter() - begun
            noted.sizes.append(inputs)

    def curves(self) -> dict[str, GrowthCurve]:
        """Return the curves, after the last batch."""
        elapsed = time.perf_counter() - self._begun
        self._note(whole=True)
        found = {}
        for name, noted in self._noted.items():
            if len(noted.sizes) > 1:
                values = tuple(torch.stack(noted.values).tolist())
                found[name] = GrowthCurve(tuple(noted.sizes), values, cost=noted.seconds / max(elapsed, 1e-9))
        return found


def rarefied_growth(collection: CriterionCollection) -> dict[str, GrowthCurve]:
    """Return the curves that states tell by themselves: means over all orders, and what as many inputs again show."""
    inputs = collection.inputs
    # Tenths and eighths for those that know folds alone, into which they cannot look.
    between = {-(-inputs * part // 40) for part in (4, 15, 30)}
    sizes = sorted(_halves(inputs, _RAREFIED_SIZES) | between | {inputs}) if inputs > 1 else []
    points: dict[str, list[tuple[int, float, float]]] = {}
    for size in sizes:
        for name, estimate in collection.rarefied(size).items():
            points.setdefault(name, []).append((size, estimate.value, estimate.error))
    ahead = collection.forecast(2 * inputs) if points else {}
    errors = collection.forecast_errors(2 * inputs) if points else {}
    return {
        name: GrowthCurve(
            tuple(size for size, _, _ in some),
            tuple(value for _, value, _ in some),
            tuple(error for _, _, error in some),
            "rarefied",
            ((2 * inputs, ahead[name], errors.get(name)),) if name in ahead else (),
        )
        for name, some in points.items()
        if len(some) > 1
    }


def _halves(whole: int, times: int) -> frozenset[int]:
    """Return a half of a number, a quarter and so on, rounded up.

    >>> sorted(_halves(100, 3)), sorted(_halves(3, 9))
    ([13, 25, 50], [1, 2])
    """
    return frozenset(-(-whole // 2**power) for power in range(1, times + 1)) - {whole}
