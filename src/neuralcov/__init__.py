"""Test coverage for neural networks."""

from typing import TYPE_CHECKING

from neuralcov.core.lazy import export_lazily

if TYPE_CHECKING:
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

_CRITERIA = ("CC", "DSC", "KMNC", "LCC", "LSC", "LVC", "MDSC", "NBC", "NC", "NLC", "NPC", "SNAC", "SS", "TKNC", "TKNP")

# Importing all of it takes seconds, most of them torch's: pytest's plugin and --help do without.
export_lazily(
    __name__,
    {
        "Activations": "neuralcov.core.activations",
        "Batch": "neuralcov.tap",
        "Coverage": "neuralcov.coverage",
        "CoverageWarning": "neuralcov.core.errors",
        "Criterion": "neuralcov.core.criterion",
        "FuzzSettings": "neuralcov.fuzz",
        "Fuzzer": "neuralcov.fuzz",
        "NeuralcovError": "neuralcov.core.errors",
        "log": "neuralcov.integrations.trackers",
        "minimise": "neuralcov.rank",
        "rank": "neuralcov.rank",
        "select": "neuralcov.rank",
        "watch": "neuralcov.coverage",
        **dict.fromkeys(_CRITERIA, "neuralcov.criteria"),
    },
    folders=(
        "core",
        "coverage",
        "criteria",
        "fuzz",
        "integrations",
        "kernels",
        "report",
        "results",
        "statistics",
        "tap",
    ),
)
