"""Test coverage for neural networks."""

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from neuralcov.core.errors import CoverageWarning, NeuralcovError
from neuralcov.coverage import Coverage
from neuralcov.criteria import KMNC, LVC, NBC, NC, NLC, NPC, SNAC, TKNC

__version__ = "0.1.0"

__all__ = [
    "KMNC",
    "LVC",
    "NBC",
    "NC",
    "NLC",
    "NPC",
    "SNAC",
    "TKNC",
    "Activations",
    "Coverage",
    "CoverageWarning",
    "Criterion",
    "NeuralcovError",
    "__version__",
]
