"""Every criterion once more, as its definition reads: plain loops in float64, for tests and ``neuralcov selftest``."""

from neuralcov.testing.oracles.kinds import LCC
from neuralcov.testing.oracles.neurons import CC, KMNC, NBC, NC, SNAC, SS, TKNC, TKNP
from neuralcov.testing.oracles.oracle import Oracle, Undecided
from neuralcov.testing.oracles.paths import NPC
from neuralcov.testing.oracles.spread import LVC, NLC
from neuralcov.testing.oracles.suites import Suite, joined
from neuralcov.testing.oracles.surprise import DSC, LSC, MDSC, Surprise

__all__ = [
    "CC", "DSC", "KMNC", "LCC", "LSC", "LVC", "MDSC", "NBC", "NC", "NLC", "NPC", "SNAC", "SS", "TKNC", "TKNP",
    "Oracle", "Suite", "Surprise", "Undecided", "joined",
]  # fmt: skip
