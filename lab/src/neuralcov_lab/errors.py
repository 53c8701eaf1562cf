"""Errors of the lab."""

from neuralcov import NeuralcovError


class DataError(NeuralcovError, RuntimeError):
    """A data set is missing, damaged or cannot be fetched."""
