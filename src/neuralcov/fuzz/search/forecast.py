"""Forecast which mutants will be misread, and say which of these are worth a call of the model.

**The forecast.** How far an input is from being misread, ``d``, is measured in log-odds of the margin (``distance``).
Form f of a mutation takes about a(f) from it, whatever the input, and inputs that grow from root r lose b(r) more than
others. Both are means over the mutants run so far, a few imagined ones of average kind among them, so that what was
seen once says little: a by what is left after b, b by what is left after a, three times over. What remains is spread
with σ, and the chance that a mutant is misread is that of a logistic variable: ``1 / (1 + exp(−s (a + b − d) / σ))``.

**The worth.** A call that surely shows a fault is not the best one. What nearly every input fails under spoils the
picture for anybody, and a fault that is only just reached is more likely one that a person, or another network, would
not make. So a mutant with chance q is worth ``q (1 − q)^t``: most at a chance of 1 / (1 + t), which tries weak inputs
by gentle forms and firm ones by harsher forms. New faults that margins say nothing of, such as those of a user's own
check, are worth what the form brought of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuralcov.fuzz.campaign.experience import Experience, distance

# Imagined mutants of average kind: of every form, and of every root.
_FORM_PRIOR, _ROOT_PRIOR = 4.0, 1.5
_ROUNDS = 3
# What a form takes, and the spread, before anything was run; and the least spread.
_FIRST_TAKEN, _FIRST_SPREAD, _LEAST_SPREAD = 1.0, 1.5, 0.5
# Makes the logistic curve as steep as the normal one with four fifths of the spread.
_STEEPNESS = 1.7 / 0.8
# t of the worth.
_GENTLENESS = 2.5
# The latest mutants that it goes by, so that a wave takes no longer late in a campaign.
_MOST = 200_000
# Points at which the worth of the best form is computed, and how far they reach.
_POINTS = 512
_REACH = 12.0


@dataclass(frozen=True, eq=False)
class Forecast:
    """Hold what forms take and roots lose.

    Args:
        forms: of every mutation, in how many listed forms it comes; 0 if it has no list.
        taken: a, ``(mutations, most forms)``.
        weakness: b, by root.
        spread: σ.
        surprises: new faults that margins say nothing of, per mutant of each form.
    """

    forms: np.ndarray
    taken: np.ndarray
    weakness: np.ndarray
    spread: float
    surprises: np.ndarray

    @classmethod
    def of(cls, experience: Experience) -> Forecast:
        """Return what a campaign's experience says."""
        shape = experience.form_runs.shape
        surprises = experience.form_surprises / (experience.form_runs + _FORM_PRIOR)
        weakness = np.zeros(len(experience.found))
        seen = experience.taken.latest(_MOST)
        if not len(seen):
            return cls(experience.forms, np.full(shape, _FIRST_TAKEN), weakness, _FIRST_SPREAD, surprises)
        roots = experience.roots.latest(_MOST)
        flat = experience.mutations.latest(_MOST) * shape[1] + experience.settings.latest(_MOST)
        runs, of_root = np.bincount(flat, minlength=shape[0] * shape[1]), np.bincount(roots, minlength=len(weakness))
        taken = np.zeros(len(runs))
        for _ in range(_ROUNDS):
            sums = np.bincount(flat, seen - weakness[roots], len(runs))
            taken = (sums + _FORM_PRIOR * seen.mean()) / (runs + _FORM_PRIOR)
            weakness = np.bincount(roots, seen - taken[flat], len(weakness)) / (of_root + _ROOT_PRIOR)
        spread = max(_LEAST_SPREAD, float(np.std(seen - taken[flat] - weakness[roots])))
        return cls(experience.forms, taken.reshape(shape), weakness, spread, surprises)

    @property
    def exists(self) -> np.ndarray:
        """Which mutations have which forms; one that has no list counts as one form."""
        return np.asarray(np.arange(self.taken.shape[1]) < np.maximum(self.forms, 1)[:, None])

    def excess(self, margins: np.ndarray, roots: np.ndarray) -> np.ndarray:
        """Return b − d of inputs: what they lose beyond what a form takes, less what they have."""
        return np.asarray(self.weakness[roots] - np.nan_to_num(distance(margins)))

    def worth(self, excess: np.ndarray) -> np.ndarray:
        """Return what mutants of inputs by every form are worth, ``(inputs, mutations, forms)``."""
        chance = self.chance(excess)
        return np.asarray(np.where(self.exists, chance * (1 - chance) ** _GENTLENESS + self.surprises, 0.0))

    def chance(self, excess: np.ndarray) -> np.ndarray:
        """Return the chance that mutants of inputs by every form are misread."""
        exponent = -_STEEPNESS * (self.taken + excess[:, None, None]) / self.spread
        return np.asarray(1 / (1 + np.exp(np.clip(exponent, -50, 50))))

    def best_worth(self, excess: np.ndarray, mutations: Sequence[bool] | np.ndarray) -> np.ndarray:
        """Return what the best mutant of every input is worth, by those of the mutations that may be applied.

        Inputs differ in one number alone, so that a curve with a few hundred points serves any number of them.
        """
        points = np.linspace(-_REACH, _REACH, _POINTS)
        allowed = np.asarray(mutations, dtype=bool)
        if not allowed.any():
            return np.zeros(len(excess))
        best = self.worth(points)[:, allowed].max((1, 2))
        return np.asarray(np.interp(excess, points, best))
