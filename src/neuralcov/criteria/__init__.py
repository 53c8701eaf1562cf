"""The criteria, one file each, named after them. Importing this package registers them all."""

from neuralcov.criteria.kmnc import KMNC
from neuralcov.criteria.lvc import LVC
from neuralcov.criteria.nbc import NBC
from neuralcov.criteria.nc import NC
from neuralcov.criteria.nlc import NLC
from neuralcov.criteria.npc import NPC
from neuralcov.criteria.snac import SNAC
from neuralcov.criteria.tknc import TKNC

ALL = (NC, KMNC, NBC, SNAC, TKNC, NLC, LVC, NPC)

__all__ = ["ALL", "KMNC", "LVC", "NBC", "NC", "NLC", "NPC", "SNAC", "TKNC"]
