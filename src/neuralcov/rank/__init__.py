"""Rank inputs by how likely they are faults, select some to label, minimise a suite."""

from neuralcov.rank.minimise import Minimised, minimise
from neuralcov.rank.queue import Queue, RankedInput
from neuralcov.rank.rank import rank
from neuralcov.rank.select import select

__all__ = ["Minimised", "Queue", "RankedInput", "minimise", "rank", "select"]
