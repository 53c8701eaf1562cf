"""Errors of the lab."""

from neuralcov.core.errors import NeuralcovError


class DataError(NeuralcovError, RuntimeError):
    """A data set is missing, damaged or cannot be fetched."""
