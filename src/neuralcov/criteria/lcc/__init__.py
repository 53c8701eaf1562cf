"""LCC, layer cell coverage."""

from neuralcov.criteria.lcc.lcc import LCC

__all__ = ["LCC"]
