"""Guides: which parents are mutated, by which mutations, and which mutants are kept.

A guide is a function of the campaign's state alone, and the state is a function of the log: so a campaign that was
killed goes on as if it had not been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from neuralcov.fuzz.campaign.experience import REPEATS
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.schedule import Schedule
from neuralcov.fuzz.search.forecast import Forecast
from neuralcov.fuzz.settings import FuzzSettings

# How many runs the guess about a kind of parent, made before any was mutated, is worth.
_GUESS = 4.0
# A parent whose mutants brought nothing loses this share of its chance with each.
_TIRING = 0.8
# The chance that what is misread is a new fault falls to this part with every fault of the root, as a first guess.
_FAULT_LEAVES = 0.25
# What each kept mutant of a lineage leaves of its worth where mutations come in listed forms, which change whole
# pictures: what was changed often is more seldom acceptable, less natural, and mostly the fault of its root again.
# A text takes many changes of a word.
_DEPTH_LEAVES = 0.5
# How far draws spread the worth.
_SPREAD = 0.2
# The share of parents, and of mutations, drawn evenly whatever was learnt.
_EVENLY = 0.1
# Runs that a mutation is taken to have had before its first, with the mean reward of all.
_FIRST_RUNS = 5.0
# What a form is worth whatever the forecast says: enough that something can be drawn where all was tried.
_LEAST_WORTH = 1e-12
# How strongly a better mutation is preferred: chances go with this power of the mean reward.
_SHARPNESS = 3.0


@dataclass(frozen=True, eq=False)
class Judged:
    """Hold what is known of mutants that the model gave numbers for, an array each.

    Args:
        parents: entries of the corpus.
        finite: whether all numbers are finite.
        faulty: whether something is wrong.
        admitted: whether coverage rose; all false where coverage takes no part.
        margin: how far from being misread; NaN where unknown.
        rival: the class it is nearest to; −1 where unknown.
    """

    parents: np.ndarray
    finite: np.ndarray
    faulty: np.ndarray
    admitted: np.ndarray
    margin: np.ndarray
    rival: np.ndarray


class Guide(ABC):
    """Choose parents and say which mutants are kept as parents of further ones."""

    # Whether a parent is done with once the model was run on a mutant of it, kept or not.
    one_run = True

    @abstractmethod
    def parents(self, state: CampaignState, count: int, numbers: np.random.Generator) -> np.ndarray:
        """Draw so many entries of the corpus."""

    @abstractmethod
    def keep(self, state: CampaignState, judged: Judged) -> np.ndarray:
        """Return which mutants are kept."""


@dataclass(frozen=True)
class CoverageGuide(Guide):
    """Keep what raises coverage: Algorithm 1 of the NLC paper."""

    schedule: Schedule
    one_run = False

    @override
    def parents(self, state: CampaignState, count: int, numbers: np.random.Generator) -> np.ndarray:
        picks = state.corpus.entries[self.schedule.counted]
        return self.schedule.sample(picks, state.can_be_seed, numbers.random(count))

    @override
    def keep(self, state: CampaignState, judged: Judged) -> np.ndarray:
        return judged.admitted


@dataclass(frozen=True)
class RandomGuide(CoverageGuide):
    """Keep everything: the baseline."""

    @override
    def keep(self, state: CampaignState, judged: Judged) -> np.ndarray:
        return judged.finite


@dataclass(frozen=True)
class MarginGuide(Guide):
    """Mutate what is near to being misread, and keep mutants that are nearer than their parent.

    How likely a mutant of a parent is to be a new fault is learnt as the campaign goes on, by how near the parent is
    and how many faults its root has led to; a first guess says the nearer, and the fewer faults, the likelier.
    Parents with the best chances go first, one per root and wave. What was misread is not kept: its mutants would be
    the same fault again.

    Args:
        settings: whether parents go by the forecast, and whether a lineage is moved once.
    """

    settings: FuzzSettings

    def chances(self, state: CampaignState, numbers: np.random.Generator) -> np.ndarray:
        """Return how much is to be hoped for from each entry."""
        if self.settings.chosen_by == "forecast":
            return _worths(state, numbers, self.settings.move_once)
        return _chances(state, numbers)

    @override
    def parents(self, state: CampaignState, count: int, numbers: np.random.Generator) -> np.ndarray:
        chances = self.chances(state, numbers)
        rows = np.flatnonzero(state.can_be_seed)
        order = rows[np.argsort(-chances[rows], kind="stable")]
        roots = state.corpus.entries["root"][order]
        _, first = np.unique(roots, return_index=True)
        best = order[np.sort(first)]
        chosen = best[np.arange(count) % len(best)]
        return _some_evenly(chosen, rows, numbers)

    @override
    def keep(self, state: CampaignState, judged: Judged) -> np.ndarray:
        nearer = judged.margin < state.corpus.entries["margin"][judged.parents]
        return np.asarray(judged.finite & ~judged.faulty & (nearer | judged.admitted))


@dataclass(frozen=True)
class ElitesGuide(MarginGuide):
    """Keep, for every true class and rival, what is nearest to being misread; mutate these in turn (MAP-Elites)."""

    @override
    def parents(self, state: CampaignState, count: int, numbers: np.random.Generator) -> np.ndarray:
        chances = self.chances(state, numbers)
        rows = np.flatnonzero(state.can_be_seed)
        pairs = _pairs(state, rows)
        order = np.lexsort((-chances[rows], pairs))
        rows, pairs = rows[order], pairs[order]
        _, first, sizes = np.unique(pairs, return_index=True, return_counts=True)
        # The best of every pair, then the second best of every pair, and so on.
        place = np.arange(len(rows)) - np.repeat(first, sizes)
        turn = rows[np.lexsort((numbers.random(len(rows)), place))]
        return _some_evenly(turn[np.arange(count) % len(turn)], rows, numbers)

    @override
    def keep(self, state: CampaignState, judged: Judged) -> np.ndarray:
        entries = state.corpus.entries
        sound = judged.finite & ~judged.faulty
        kept = judged.admitted & sound
        rows = np.flatnonzero(sound & (judged.rival >= 0))
        labels = state.labels[entries["root"][judged.parents[rows]]].astype(np.int64)
        pairs = (labels + 1) * _CLASSES + judged.rival[rows] + 1
        margins = judged.margin[rows]
        nearest = below_best(_pairs(state, np.arange(len(entries))), entries["margin"], pairs, margins)
        kept[rows] |= nearest | (margins < entries["margin"][judged.parents[rows]])
        return np.asarray(kept)


def below_best(known: np.ndarray, values: np.ndarray, groups: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return which candidates are below all values of their group, and below all candidates of it before them.

    Values are replaced by their ranks, of which those of group g are lowered by g times a number above all ranks: then
    one running minimum over the candidates, ordered by group, begins anew with each group.

    >>> below_best(np.array([7, 8]), np.array([0.5, 0.9]), np.array([7, 8, 7, 7]), np.array([0.4, 0.9, 0.45, 0.3]))
    array([ True, False, False,  True])
    """
    if not len(candidates):
        return np.zeros(0, dtype=bool)
    _, group = np.unique(np.concatenate([known, groups]), return_inverse=True)
    _, rank = np.unique(np.concatenate([np.nan_to_num(values, nan=np.inf), candidates]), return_inverse=True)
    most = len(rank) + 1
    best = np.full(int(group.max()) + 1, most - 1)
    np.minimum.at(best, group[: len(known)], rank[: len(known)])
    mine, ranks = group[len(known) :], rank[len(known) :]
    order = np.argsort(mine, kind="stable")
    lowered = ranks[order] - mine[order] * most
    before = np.concatenate([[most], np.minimum.accumulate(lowered)[:-1]]) + mine[order] * most
    found = np.zeros(len(candidates), dtype=bool)
    # What runs over from the group before is above every rank of this one.
    found[order] = ranks[order] < np.minimum(before, best[mine[order]])
    return found


def guide_of(settings: FuzzSettings) -> Guide:
    """Return the guide that settings name."""
    name = settings.guide.split("+")[0]
    if name in ("coverage", "random"):
        return (RandomGuide if name == "random" else CoverageGuide)(Schedule.of(settings.schedule))
    return (MarginGuide if name == "margin" else ElitesGuide)(settings)


def mutation_weights(state: CampaignState) -> np.ndarray:
    """Return the chance of each mutation by what it brought: a bandit that never gives one up.

    A tenth is shared evenly; the rest goes by mean reward, where every mutation begins as if it had been run a few
    times with the mean of all.
    """
    runs, rewards = state.experience.form_runs.sum(1), state.experience.form_rewards.sum(1)
    mean = (rewards.sum() + 1.0) / (runs.sum() + 1.0)
    return _by_worth((rewards + _FIRST_RUNS * mean) / (runs + _FIRST_RUNS))


def form_weights(state: CampaignState, mutation: int) -> np.ndarray | None:
    """Return the chance of each listed form of a mutation, in the same way; ``None`` if it has no list."""
    experience = state.experience
    count = experience.forms[mutation]
    if not count:
        return None
    runs, rewards = experience.form_runs[mutation, :count], experience.form_rewards[mutation, :count]
    mean = (rewards.sum() + 0.1) / (runs.sum() + 1.0)
    return _by_worth((rewards + _FIRST_RUNS * mean) / (runs + _FIRST_RUNS))


def _by_worth(worth: np.ndarray) -> np.ndarray:
    worth = worth**_SHARPNESS
    return np.asarray(_EVENLY / len(worth) + (1 - _EVENLY) * worth / worth.sum())


def _chances(state: CampaignState, numbers: np.random.Generator) -> np.ndarray:
    """Return, per entry, a draw of the chance that a mutant of it is a new fault (Thompson's sampling)."""
    runs, faults = state.experience.parent_runs, state.experience.parent_faults
    cells = np.arange(len(runs))
    # The guess falls evenly from 0.6 for those nearest, and halves with every fault the root has led to.
    guess = (0.6 * (1 - cells / len(cells))[:, None] * 0.5 ** np.arange(REPEATS))[:, :, None]
    drawn = numbers.beta(faults + _GUESS * guess, np.maximum(runs - faults, 0) + _GUESS * (1 - guess))
    entries = state.corpus.entries
    chances = drawn[state.experience.parent_cells(entries)]
    # Those already misread, such as seeds the model has wrong, cannot lead to a fault.
    chances = np.where(entries["margin"] < 0, 0.0, chances) * _TIRING ** entries["children"]
    # Ties, which are many, fall at random.
    return np.asarray(chances * (1 + 1e-6 * numbers.random(len(chances))))


def _worths(state: CampaignState, numbers: np.random.Generator, move_once: bool) -> np.ndarray:
    """Return, per entry, what the best mutant of it is worth by the forecast."""
    forecast, entries = Forecast.of(state.experience), state.corpus.entries
    excess = forecast.excess(entries["margin"], entries["root"])
    anything = np.ones(len(state.geometric), dtype=bool)
    worths = forecast.best_worth(excess, anything)
    if move_once:
        still = ~state.geometric
        worths = np.where(entries["moved"], forecast.best_worth(excess, still), worths)
    experience = state.experience
    guess = _FAULT_LEAVES ** np.arange(REPEATS)
    anew = (experience.misread_anew + _GUESS * guess) / (experience.misread + _GUESS)
    _, repeats, _ = experience.parent_cells(entries)
    worths *= anew[repeats] * _TIRING ** entries["children"]
    if experience.forms.any():
        worths *= _DEPTH_LEAVES ** entries["depth"]
    worths = np.where(entries["margin"] < 0, 0.0, worths)
    return np.asarray(worths * (1 + _SPREAD * numbers.random(len(worths))))


def form_worths(state: CampaignState, parents: np.ndarray) -> np.ndarray:
    """Return the chance of each form of each mutation for these parents, by the forecast; those tried have hardly any.

    A tenth is shared evenly, among mutations and then among their forms.
    """
    forecast, entries = Forecast.of(state.experience), state.corpus.entries[parents]
    worths = forecast.worth(forecast.excess(entries["margin"], entries["root"])) ** _SHARPNESS
    exists = forecast.exists
    worths = np.where(exists, np.where(state.experience.tried(parents), 0.0, worths) + _LEAST_WORTH, 0.0)
    evenly = exists / (exists.sum(1, keepdims=True) * len(exists))
    return np.asarray(_EVENLY * evenly + (1 - _EVENLY) * worths / worths.sum((1, 2), keepdims=True))


def _some_evenly(chosen: np.ndarray, rows: np.ndarray, numbers: np.random.Generator) -> np.ndarray:
    """Replace a tenth of the chosen parents by ones drawn evenly."""
    evenly = numbers.random(len(chosen)) < _EVENLY
    picks = rows[np.minimum((numbers.random(len(chosen)) * len(rows)).astype(np.int64), len(rows) - 1)]
    return np.where(evenly, picks, chosen)


def _pairs(state: CampaignState, rows: np.ndarray) -> np.ndarray:
    entries = state.corpus.entries
    labels = state.labels[entries["root"][rows]].astype(np.int64)
    return np.asarray((labels + 1) * _CLASSES + entries["rival"][rows] + 1)


# More classes than any model has.
_CLASSES = 1 << 31
