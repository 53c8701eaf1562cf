"""Orders of unlabelled inputs: ours, and those of the field, each from its paper's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.rank.collecting import Gathered
from neuralcov.rank.columns import Names
from neuralcov.rank.rank import queue_of

GINI, OURS = "DeepGini", "DeepGini + trust"
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
}


@dataclass(frozen=True, eq=False)
class Pool:
    """Inputs to put in order, as rows of a test set.

    Args:
        rows: of the inputs.
        scores: of all inputs of the test set, by name.
        found: what ranking knows of them.
        features: what the last layer before the output gave for them.
        covered: by criterion, what each input alone covers.
    """

    rows: np.ndarray
    scores: Mapping[str, np.ndarray]
    found: Gathered
    features: Tensor
    covered: Mapping[str, np.ndarray]

    def orders(self, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the rows in the order of every method but those that search."""
        made = {"random": random.permutation(self.rows), OURS: self.rows[self.ours()]}
        for method, (score, largest) in BY_SCORE.items():
            made[method] = _by(self.rows, self.scores[score], largest=largest)
        for criterion, own in self.covered.items():
            made[f"{criterion} CTM"] = _by(self.rows, own, largest=True)
        made["k-centre"] = self.rows[farthest_first(self.features[torch.from_numpy(self.rows)])]
        return made

    def ours(self, labels: Mapping[int, int] | None = None) -> np.ndarray:
        """Return the places of the rows in the library's own order; with labels of some places, without these."""
        names = Names()
        names.count = len(self.rows)
        columns = {name: column[self.rows] for name, column in self.found.columns.items()}
        part = Gathered(self.found.scores, columns, names, self.found.scorers)
        known = None if labels is None else {str(place): label for place, label in labels.items()}
        return queue_of(part, known, (), None).order


def _by(rows: np.ndarray, score: np.ndarray, *, largest: bool) -> np.ndarray:
    """Return rows by a score; those that have none take the median."""
    own = score[rows].astype(np.float64)
    own = np.where(np.isnan(own), np.nanmedian(own), own)
    return rows[np.argsort(-own if largest else own, kind="stable")]


def farthest_first(features: Tensor) -> np.ndarray:
    """Order points by k-centre's greedy search: each as far as can be from those before it, the first from the mean."""
    points = features.double()
    nearest = (points - points.mean(0)).square().sum(1)
    order = []
    for _ in range(len(points)):
        place = int(nearest.argmax())
        order.append(place)
        nearest = (
            torch.minimum(nearest, (points - points[place]).square().sum(1))
            if len(order) > 1
            else (points - points[place]).square().sum(1)
        )
        nearest[order] = -1
    return np.array(order)


def additional(rows: np.ndarray, alone: np.ndarray, greedy: Callable[[np.ndarray], Sequence[int]]) -> np.ndarray:
    """Order rows by additional coverage (CAM): greedy search until nothing is added, then the rest by what each covers.

    Args:
        rows: to order.
        alone: what each input of the test set covers by itself.
        greedy: from rows to the places of those that add something, in order.
    """
    first = rows[list(greedy(rows))]
    rest = rows[~np.isin(rows, first)]
    return np.concatenate([first, _by(rest, alone, largest=True)]) if len(rest) else first
