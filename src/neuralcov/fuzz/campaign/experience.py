"""What a campaign has learnt from the mutants that the model was run on: by mutation, by parent, by margin lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

# Upper edges of the cells that margins are sorted into: fine where the model is nearly unsure, or nearly sure.
_EDGES = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 0.99, 0.999])
# One more cell beyond the last edge, and one for margins that are not known.
NEARNESS_CELLS = len(_EDGES) + 2
# What taking all margin from a parent is worth, where a new fault is worth 1.
_MARGIN_WORTH = 0.05
# Roots are told apart by how many faults they led to, up to this.
REPEATS = 4
# Entries are told apart by how many kept mutants their lineage holds, up to this: what was changed much already can
# be changed only a little more.
DEPTHS = 3
# Margins beyond this count as this: probabilities of 0 and 1 are as far as they are by rounding alone.
_SUREST = 0.98


def nearness(margins: np.ndarray) -> np.ndarray:
    """Return the cell of each margin; the last one if it is not known.

    >>> nearness(np.array([-0.5, 0.03, 1.0, np.nan])).tolist()
    [0, 1, 11, 12]
    """
    cells = np.searchsorted(_EDGES, margins, side="right")
    return np.where(np.isnan(margins), NEARNESS_CELLS - 1, cells)


def distance(margins: np.ndarray) -> np.ndarray:
    """Return how far from being misread a margin is, on a scale on which what mutations take adds up: log-odds.

    >>> distance(np.array([-1.0, 0.0, 0.5])).round(2).tolist()
    [-4.6, 0.0, 1.1]
    """
    margins = np.clip(margins, -_SUREST, _SUREST)
    return np.asarray(np.log((1 + margins) / (1 - margins)))


class Experience:
    """Add up what mutants brought; a function of the log.

    Args:
        roots: how many root inputs there are.
        forms: of every mutation, in how many listed forms it comes; 0 if it has no list.
    """

    def __init__(self, roots: int, forms: Sequence[int]) -> None:
        self.forms = np.asarray(forms, dtype=np.int64)
        # By root input: how many different faults it led to. By mutation and form: how often run, and what it brought.
        self.found = np.zeros(roots, dtype=np.int32)
        self.form_runs = np.zeros((len(forms), max([1, *forms])), dtype=np.int64)
        self.form_rewards = np.zeros(self.form_runs.shape)
        # New faults that the margin says nothing of, such as those of a user's own check.
        self.form_surprises = np.zeros(self.form_runs.shape, dtype=np.int64)
        # What parents brought, by how near they were: see ``nearness``.
        self.parent_runs = np.zeros((NEARNESS_CELLS, REPEATS, DEPTHS), dtype=np.int64)
        self.parent_faults = np.zeros(self.parent_runs.shape, dtype=np.int64)
        # By how many faults their root had led to: misread mutants, and those of them that were a new fault.
        self.misread = np.zeros(REPEATS, dtype=np.int64)
        self.misread_anew = np.zeros(REPEATS, dtype=np.int64)
        # Of mutants by one mutation: root input, mutation, form, and by how much nearer than the parent they came.
        self.roots, self.mutations, self.settings = (_Growing(np.int64) for _ in range(3))
        self.taken = _Growing(np.float64)
        # By entry and listed form, all forms of the first mutation before those of the second.
        self._first_column = np.cumsum(self.forms) - self.forms
        self._tried = np.zeros((roots, int(self.forms.sum())), dtype=bool)

    def parent_cells(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the cells that entries are sorted into: how near they are, what their root led to, how deep."""
        repeats = np.minimum(self.found[entries["root"]], REPEATS - 1)
        return nearness(entries["margin"]), repeats, np.minimum(entries["depth"], DEPTHS - 1)

    def tried(self, parents: np.ndarray) -> np.ndarray:
        """Return which listed forms these entries had their mutants by, ``(entries, mutations, forms)``."""
        found = np.zeros((len(parents), *self.form_runs.shape), dtype=bool)
        known = np.flatnonzero(parents < len(self._tried))
        for mutation, (first, forms) in enumerate(zip(self._first_column, self.forms, strict=True)):
            found[known, mutation, :forms] = self._tried[parents[known], first : first + forms]
        return found

    def learn(
        self,
        parents: np.ndarray,
        entries: np.ndarray,
        margins: np.ndarray,
        new: np.ndarray,
        by: Iterator[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Take in mutants that the model was run on.

        A mutation is rewarded with 1 for a new fault, else with a part of the margin it took from the parent.

        Args:
            parents: the numbers of their parents.
            entries: their parents, as the corpus tells of them.
            margins: how far each mutant is from being misread.
            new: which of them show a fault that was not seen before.
            by: of every stage, the places of its mutants and the mutations applied to them.
        """
        cells, roots, before = self.parent_cells(entries), entries["root"], entries["margin"]
        lost = _MARGIN_WORTH * np.nan_to_num(np.clip(before - margins, 0, 1))
        rewards = np.where(new, 1.0, lost)
        surprising = new & ~(margins < 0)
        np.add.at(self.found, roots, new)
        np.add.at(self.parent_runs, cells, 1)
        np.add.at(self.parent_faults, cells, new)
        wrong = margins < 0
        np.add.at(self.misread, cells[1][wrong], 1)
        np.add.at(self.misread_anew, cells[1][wrong], new[wrong])
        stages = [(places, *self._forms_of(applied)) for places, applied in by]
        once = np.zeros(len(parents), dtype=np.int64)
        for places, mutations, settings in stages:
            once[places] += 1
            np.add.at(self.form_runs, (mutations, settings), 1)
            np.add.at(self.form_rewards, (mutations, settings), rewards[places])
            np.add.at(self.form_surprises, (mutations, settings), surprising[places])
        for places, mutations, settings in stages:
            # What several mutations took together says little of each.
            alone = once[places] == 1
            self._remember(parents, roots, distance(before) - distance(margins), places, mutations, settings, alone)

    def _forms_of(self, applied: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mutations = applied["mutation"]
        return mutations, np.where(self.forms[mutations] > 0, applied["setting"], 0)

    def _remember(
        self,
        parents: np.ndarray,
        roots: np.ndarray,
        taken: np.ndarray,
        places: np.ndarray,
        mutations: np.ndarray,
        settings: np.ndarray,
        alone: np.ndarray,
    ) -> None:
        listed = alone & (self.forms[mutations] > 0)
        highest = int(parents.max(initial=-1))
        if highest >= len(self._tried):
            more = max(highest + 1 - len(self._tried), len(self._tried))
            self._tried = np.concatenate([self._tried, np.zeros((more, self._tried.shape[1]), dtype=bool)])
        self._tried[parents[places[listed]], self._first_column[mutations[listed]] + settings[listed]] = True
        known = alone & ~np.isnan(taken[places])
        self.roots.add(roots[places[known]])
        self.mutations.add(mutations[known])
        self.settings.add(settings[known])
        self.taken.add(taken[places[known]])


class _Growing:
    """Hold numbers; memory doubles when it is full."""

    def __init__(self, dtype: type) -> None:
        self._numbers: np.ndarray = np.zeros(1024, dtype)
        self._count = 0

    def add(self, more: np.ndarray) -> None:
        """Put numbers behind the others."""
        needed = self._count + len(more)
        if needed > len(self._numbers):
            larger = np.zeros(2 * needed, self._numbers.dtype)
            larger[: self._count] = self._numbers[: self._count]
            self._numbers = larger
        self._numbers[self._count : needed] = more
        self._count = needed

    def latest(self, most: int) -> np.ndarray:
        """Return the last numbers, at most so many."""
        return self._numbers[max(0, self._count - most) : self._count]
