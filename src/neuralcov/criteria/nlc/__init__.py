"""NLC, neural coverage."""

from neuralcov.criteria.nlc.nlc import NLC

__all__ = ["NLC"]
