"""The laboratory of neuralcov: networks, data sets, their training, and the NLC paper's experiments."""

__version__ = "0.1.0"
