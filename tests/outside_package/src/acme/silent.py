"""Tick off neurons that were silent for some input."""

from dataclasses import dataclass

from neuralcov.criteria import BitmapCriterion, number


@dataclass(frozen=True, eq=False)
class Silent(BitmapCriterion):
    """The share of neurons that were silent, up to a tolerance, for some input."""

    tolerance: float = 0.0

    def __post_init__(self):
        number(self, "tolerance", at_least=0)

    def hits(self, stack):
        return stack.values.abs() <= self.tolerance
