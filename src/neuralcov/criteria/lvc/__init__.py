"""LVC, layer volume coverage."""

from neuralcov.criteria.lvc.lvc import LVC

__all__ = ["LVC"]
