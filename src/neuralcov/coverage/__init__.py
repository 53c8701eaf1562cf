"""Coverage, and what it is made of."""

from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.watching import watch

__all__ = ["Coverage", "watch"]
