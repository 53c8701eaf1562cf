"""Orders of unlabelled inputs that follow from numbers of every input: ours, and those of the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from neuralcov.rank.collecting import ALL_SCORES, SMALLEST_FIRST, Gathered
from neuralcov.rank.columns import Names
from neuralcov.rank.rank import queue_of
from neuralcov.rank.scorers import Scorers
from neuralcov.rank.scores import average_ranks
from neuralcov_lab.experiments.selecting.meter import COVERING, HIDDEN

GINI, OURS = "DeepGini", "DeepGini + trust"
# As inputs of models without classes are ranked: by hidden states alone.
PROMPTS = "hidden states alone"
# Method → the score it orders by, and whether the largest comes first.
BY_SCORE = {
    GINI: ("gini", True),
    "margin": ("margin", False),
    "trust": ("trust", False),
    "entropy": ("entropy", True),
    "max probability": ("most", False),
    "LSA": ("lsc", True),
    "DSA": ("dsc", True),
    "MDSA": ("mdsc", True),
    "LCC rarity": ("rarity", True),
    "FAST's idea": ("fast", True),
} | {f"{criterion.name} CTM": (f"{criterion.name} CTM", True) for criterion in COVERING}
# Method → how much the rank by each score counts in a sum: what the default is chosen from, beside single scores.
CANDIDATES: dict[str, Mapping[str, float]] = {
    "margin + DSC": {"margin": 1, "dsc": 1},
    "margin + trust": {"margin": 1, "trust": 1},
    "DeepGini + DSC": {"gini": 1, "dsc": 1},
    "2 × DeepGini + trust": {"gini": 2, "trust": 1},
    "DeepGini + 2 × trust": {"gini": 1, "trust": 2},
    "DeepGini + trust + rarity": {"gini": 1, "trust": 1, "rarity": 1},
}


@dataclass(frozen=True, eq=False)
class Pool:
    """Inputs to put in order, as rows of a test set.

    Args:
        rows: of the inputs.
        columns: numbers of all inputs of the test set, by name.
    """

    rows: np.ndarray
    columns: Mapping[str, np.ndarray]

    def orders(self, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the rows in the order of every method but those that search."""
        made = {"random": random.permutation(self.rows), OURS: self.rows[self.ours()]}
        for method, (score, largest) in BY_SCORE.items():
            made[method] = self._by(score, largest=largest)
        for method, weights in CANDIDATES.items():
            made[method] = self._by_ranks(weights)
        if HIDDEN in self.columns:
            made[PROMPTS] = self._by_ranks({HIDDEN: 1, "rarity": 1})
        return made

    def ours(self, labels: Mapping[int, int] | None = None) -> np.ndarray:
        """Return the places of the rows in the library's own order; with labels of some places, without these."""
        names = Names()
        names.count = len(self.rows)
        columns = {name: self.columns[name][self.rows] for name in (*ALL_SCORES, "first", "second")}
        nothing = Scorers({}, None, None, "", 0, None)
        known = None if labels is None else {str(place): label for place, label in labels.items()}
        return queue_of(Gathered(ALL_SCORES, columns, names, nothing), known, (), None).order

    def _by(self, score: str, *, largest: bool) -> np.ndarray:
        """Return rows by a score; those that have none take the median."""
        own = self.columns[score][self.rows].astype(np.float64)
        own = np.where(np.isnan(own), np.nanmedian(own), own)
        return self.rows[np.argsort(-own if largest else own, kind="stable")]

    def _by_ranks(self, weights: Mapping[str, float]) -> np.ndarray:
        """Return rows by a weighted sum of ranks."""
        total = np.zeros(len(self.rows))
        for score, weight in weights.items():
            own = self.columns[score][self.rows].astype(np.float64)
            average_ranks(own, largest_first=score not in SMALLEST_FIRST, weight=weight, onto=total)
        return self.rows[np.argsort(total, kind="stable")]
