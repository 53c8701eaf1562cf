"""Surprise coverage: LSC, DSC and MDSC."""

from neuralcov.criteria.surprise.dsc import DSC
from neuralcov.criteria.surprise.lsc import LSC
from neuralcov.criteria.surprise.mdsc import MDSC

__all__ = ["DSC", "LSC", "MDSC"]
