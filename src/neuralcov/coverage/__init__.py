"""Coverage, and what it is made of."""

from neuralcov.coverage.coverage import Coverage

__all__ = ["Coverage"]
