"""References: what held-out training inputs gave, and what a suite's value is beside as many of them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from neuralcov.results.sections import Reference

_ERRORS = 2.0
AS_VARIED, MORE, LESS = "as varied as training data", "more than training data shows", "less than training data shows"


@dataclass(frozen=True)
class ReferenceCurve:
    """Hold a criterion's values for so many held-out training inputs each, numbers rising.

    Args:
        sizes: how many inputs.
        values: the value for each of these.
        definition: the number of the definition that they were measured under.
    """

    sizes: tuple[int, ...]
    values: tuple[float, ...]
    definition: int

    def at(self, inputs: int) -> Reference:
        """Return the reference for a suite: interpolated in log n between two sizes, and none beyond the largest.

        >>> curve = ReferenceCurve((1, 2, 4, 6), (0.1, 0.2, 0.4, 0.5), definition=1)
        >>> curve.at(4).value, round(curve.at(3).value, 3), curve.at(100).inputs, curve.at(100).value
        (0.4, 0.317, 6, 0.5)
        """
        size = max(self.sizes[0], min(inputs, self.sizes[-1]))
        above = bisect_left(self.sizes, size)
        value = self.values[above]
        if self.sizes[above] != size:
            low, high = self.sizes[above - 1], self.sizes[above]
            share = math.log(size / low) / math.log(high / low)
            value = self.values[above - 1] + share * (value - self.values[above - 1])
        return Reference(value, size, self.sizes, self.values)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as files keep it."""
        return {"sizes": list(self.sizes), "values": list(self.values), "definition": self.definition}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what a file holds; refuse sizes that do not rise, and values that are no numbers."""
        sizes = tuple(int(size) for size in content["sizes"])
        values = tuple(float(value) for value in content["values"])
        rising = all(low < high for low, high in zip((0, *sizes), sizes, strict=False))
        if not sizes or len(sizes) != len(values) or not rising or not all(map(math.isfinite, values)):
            raise ValueError(f"reference of sizes {sizes} and values {values}")
        return cls(sizes, values, int(content["definition"]))


@dataclass(frozen=True)
class Against:
    """Say what a value is beside its reference.

    Args:
        verdict: ``as varied as training data``, more, or less; ``None`` where that is not judged.
        told: the reference, for how many inputs, and why nothing is judged where it is not.
    """

    verdict: str | None
    told: str


def against_reference(
    value: float, error: float | None, inputs: int, reference: Reference, show: Callable[[float], str]
) -> Against:
    """Say what a criterion's value is beside that of as many held-out inputs; nobody wins within two standard errors.

    Args:
        value: that of the suite.
        error: its standard error, where one is known.
        inputs: how many inputs the suite has.
        reference: what held-out inputs show.
        show: what formats a value.
    """
    shown = show(reference.value)
    told = f"{shown} for {reference.inputs:,} held-out training inputs"
    if reference.inputs < inputs:
        if reference.beside is None:
            return Against(None, f"{told}, fewer than these: not judged")
        value = reference.beside
        told += f", where as many of these show {show(value)}"
        # Fewer inputs scatter more.
        error = None if error is None else error * math.sqrt(inputs / reference.inputs)
    if error is None or not math.isfinite(error):
        return Against(None, f"{told}; no error is known: not judged")
    # The reference scatters as the suite does: both have as many inputs.
    difference = value - reference.value
    reach = _ERRORS * math.sqrt(2) * error
    verdict = AS_VARIED if abs(difference) <= reach else MORE if difference > 0 else LESS
    return Against(verdict, f"{told}, ± {show(reach)}")
