"""Why an input stands where it stands, in one short sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neuralcov.rank.collecting import SMALLEST_FIRST, USUAL, Gathered
from neuralcov.rank.scorers import RARITY, TRUST, score_name

# Of all inputs, those that a score is strong for, and those that it is fairly strong for.
_STRONG, _FAIR = 0.1, 1 / 3
_FAMILIES = {
    "margin": "doubt",
    "gini": "doubt",
    "entropy": "doubt",
    "dsc": "distance",
    "lsc": "distance",
    "mdsc": "distance",
    RARITY: RARITY,
    TRUST: "neighbours",
}
# Margins below which two classes are called near whatever other inputs have, and above which never.
_NEAR, _FAR = 0.2, 0.9


@dataclass(frozen=True, eq=False)
class Reasons:
    """Say why, given an input's position.

    Args:
        found: what is known of every input.
        limits: by score, what the strong and the fairly strong ones reach.
        scores: those to speak of, the weightiest first.
        classes: names of the classes.
    """

    found: Gathered
    limits: Mapping[str, tuple[float, float]]
    scores: tuple[str, ...]
    classes: Sequence[str]

    @classmethod
    def of(cls, found: Gathered, weights: Mapping[str, float], classes: Sequence[str]) -> Reasons:
        """Find the limits; of scores that tell of the same, keep the one that was learnt to tell most."""
        usual = dict.fromkeys(USUAL if set(USUAL) <= set(found.scores) else found.scores, 1.0)
        ordered = sorted((weight, name) for name, weight in (weights or usual).items() if weight > 0)
        kept = {_FAMILIES[name]: name for _, name in ordered}
        # Distance first, as the sentence reads best.
        scores = tuple(kept[family] for family in ("neighbours", "distance", RARITY, "doubt") if family in kept)
        limits = {name: _limits(found.columns[name], smallest=name in SMALLEST_FIRST) for name in scores}
        return cls(found, limits, scores, classes)

    def __call__(self, position: int) -> str:
        """Return the sentence for one input."""
        columns = self.found.columns
        if "margin" in columns and np.isneginf(columns["margin"][position]):
            return "its output is NaN or infinite"
        parts = [part for name in self.scores if (part := self._part(name, float(columns[name][position]), position))]
        missing = [score_name(name) for name in self.scores if np.isnan(columns[name][position])]
        if missing:
            parts.append(f"no {' or '.join(missing)} to be had, so taken as average")
        if not parts:
            return "nothing odd" if "first" not in columns else f"sure of {self._class('first', position)}, nothing odd"
        return ", and ".join(parts)

    def said(self, position: int) -> str:
        """Return what the model says of one input; nothing where it has no classes."""
        return "" if "first" not in self.found.columns else f"said {self._class('first', position)}"

    def _part(self, name: str, value: float, position: int) -> str:
        strong, fair = self.limits[name]
        sign = -1 if name in SMALLEST_FIRST else 1
        degree = "" if sign * value >= sign * strong else "rather " if sign * value >= sign * fair else None
        family = _FAMILIES[name]
        if family == "doubt":
            margin = float(self.found.columns["margin"][position])
            if margin < _NEAR:
                degree = ""
            elif margin > _FAR and degree is not None:
                return f"less sure than others, {self._class('second', position)} being next"
            return "" if degree is None else f"{degree}near the boundary to {self._class('second', position)}"
        if np.isnan(value) or degree is None:
            return ""
        if family == "neighbours":
            return f"{degree}close to training data of other classes"
        if family == RARITY:
            return f"of a {degree}rare kind in training data"
        whose = "its class's training data" if "first" in self.found.columns else "training data"
        return f"{degree}far from {whose}"

    def _class(self, column: str, position: int) -> str:
        number = int(self.found.columns[column][position])
        return str(self.classes[number]) if 0 <= number < len(self.classes) else str(number)


def _limits(column: np.ndarray, *, smallest: bool) -> tuple[float, float]:
    """Return what the strongest tenth and third of the inputs reach."""
    known = column[np.isfinite(column)]
    if not len(known):
        return (np.inf, np.inf)
    counts = [math.ceil(share * len(known)) for share in (_STRONG, _FAIR)]
    places = [count - 1 if smallest else len(known) - count for count in counts]
    # In place: there may be many.
    known.partition(places)
    return float(known[places[0]]), float(known[places[1]])
