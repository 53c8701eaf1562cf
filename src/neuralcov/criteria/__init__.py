"""The criteria, one file each, named after them. Importing this package registers them all."""

from neuralcov.criteria.cc import CC
from neuralcov.criteria.kmnc import KMNC
from neuralcov.criteria.lvc import LVC
from neuralcov.criteria.nbc import NBC
from neuralcov.criteria.nc import NC
from neuralcov.criteria.nlc.nlc import NLC
from neuralcov.criteria.npc.npc import NPC
from neuralcov.criteria.snac import SNAC
from neuralcov.criteria.ss.ss import SS
from neuralcov.criteria.surprise.dsc import DSC
from neuralcov.criteria.surprise.lsc import LSC
from neuralcov.criteria.surprise.mdsc import MDSC
from neuralcov.criteria.tknc import TKNC
from neuralcov.criteria.tknp import TKNP

ALL = (NC, KMNC, NBC, SNAC, TKNC, TKNP, SS, CC, LSC, DSC, MDSC, NPC, NLC, LVC)

__all__ = ["ALL", "CC", "DSC", "KMNC", "LSC", "LVC", "MDSC", "NBC", "NC", "NLC", "NPC", "SNAC", "SS", "TKNC", "TKNP"]
