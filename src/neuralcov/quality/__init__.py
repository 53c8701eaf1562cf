"""How good a set of inputs is: what the faults among them reach, and how natural they look."""

from neuralcov.quality.diversity import classes_reached, scaled_entropy
from neuralcov.quality.naturalness import Naturalness, naturalness

__all__ = ["Naturalness", "classes_reached", "naturalness", "scaled_entropy"]
