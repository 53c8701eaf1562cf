"""The criteria, one file each, named after them, and all that an author of further ones needs.

Importing this package registers the criteria.
"""

from neuralcov.core.activations import Activations, Stack
from neuralcov.core.arguments import flag, number, one_of, whole_number
from neuralcov.core.counts import NOT_FINITE, NOT_PLACEABLE, VALID, count_admitted, not_finite
from neuralcov.core.criterion import (
    ALL_PROMISES,
    DUPLICATE_FREE,
    MERGE_EXACT,
    NEVER_FALLS,
    ORDER_FREE,
    SPLIT_FREE,
    SUBMODULAR,
    Criterion,
    State,
)
from neuralcov.core.hyper_parameters import resource
from neuralcov.core.layout import Layout, in_execution_order
from neuralcov.core.records import Record
from neuralcov.criteria.bitmap import BitmapCriterion
from neuralcov.criteria.cc import CC
from neuralcov.criteria.distinct import ABSENT, DistinctCriterion
from neuralcov.criteria.kmnc import KMNC
from neuralcov.criteria.lcc import LCC
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
from neuralcov.kernels.hashing import set_keys
from neuralcov.statistics.calibration import Calibration
from neuralcov.statistics.moments import LayerMoments, Moments
from neuralcov.statistics.ranges import NeuronRanges, Ranges
from neuralcov.statistics.statistic import Statistic
from neuralcov.statistics.traces import Traces, TraceStore

ALL = (NC, KMNC, NBC, SNAC, TKNC, TKNP, SS, CC, LSC, DSC, MDSC, NPC, NLC, LVC, LCC)

__all__ = [
    "ABSENT",
    "ALL",
    "ALL_PROMISES",
    "Activations",
    "BitmapCriterion",
    "CC",
    "Calibration",
    "Criterion",
    "DSC",
    "DUPLICATE_FREE",
    "DistinctCriterion",
    "KMNC",
    "LSC",
    "LCC",
    "LVC",
    "LayerMoments",
    "Layout",
    "MDSC",
    "MERGE_EXACT",
    "Moments",
    "NBC",
    "NC",
    "NEVER_FALLS",
    "NLC",
    "NOT_FINITE",
    "NOT_PLACEABLE",
    "NPC",
    "NeuronRanges",
    "ORDER_FREE",
    "Ranges",
    "Record",
    "SNAC",
    "SPLIT_FREE",
    "SS",
    "SUBMODULAR",
    "Stack",
    "State",
    "Statistic",
    "TKNC",
    "TKNP",
    "TraceStore",
    "Traces",
    "VALID",
    "count_admitted",
    "flag",
    "in_execution_order",
    "not_finite",
    "number",
    "one_of",
    "resource",
    "set_keys",
    "whole_number",
]
