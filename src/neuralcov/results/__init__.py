"""What a measurement gave, as plain data."""

from neuralcov.results.results import Results

__all__ = ["Results"]
