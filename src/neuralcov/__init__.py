"""Test coverage for neural networks."""

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning, NeuralcovError
from neuralcov.coverage import Coverage, watch
from neuralcov.criteria import CC, DSC, KMNC, LCC, LSC, LVC, MDSC, NBC, NC, NLC, NPC, SNAC, SS, TKNC, TKNP
from neuralcov.fuzz import Fuzzer, FuzzSettings
from neuralcov.integrations.trackers import log
from neuralcov.rank import minimise, rank, select
from neuralcov.tap import Batch

__version__ = "0.1.0"

__all__ = [
    "CC",
    "DSC",
    "KMNC",
    "LSC",
    "LCC",
    "LVC",
    "MDSC",
    "NBC",
    "NC",
    "NLC",
    "NPC",
    "SNAC",
    "SS",
    "TKNC",
    "TKNP",
    "Activations",
    "Batch",
    "Coverage",
    "CoverageWarning",
    "Criterion",
    "FuzzSettings",
    "Fuzzer",
    "NeuralcovError",
    "__version__",
    "log",
    "minimise",
    "rank",
    "select",
    "watch",
]
