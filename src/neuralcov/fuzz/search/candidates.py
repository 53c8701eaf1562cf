"""The candidates of a wave: parents and mutations drawn, mutants made and checked, all of a mutation at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.log import (
    APPLIED,
    AppliedMutation,
    any_stage,
    applied_table,
    no_candidates,
    set_stage,
    stages,
)
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation, MutationDraw
from neuralcov.fuzz.randomness import choices, wave_generator
from neuralcov.fuzz.search.guides import Guide, form_weights, form_worths, mutation_weights
from neuralcov.fuzz.settings import FuzzSettings
from neuralcov.fuzz.validity import Validity

# What a form keeps of its weight once it was drawn in a wave.
_DRAWN_KEEPS = 1e-6


@dataclass(frozen=True, eq=False)
class Candidates:
    """Hold one candidate per parent under way, a row each.

    Args:
        table: ``CANDIDATE``, verdict and what follows still empty.
        acceptable: which mutants pass the validity rule, on the host.
        mutants: as they are stored, on the device.
        comparisons: what each is compared with, on the device.
    """

    table: np.ndarray
    acceptable: np.ndarray
    mutants: Tensor
    comparisons: Tensor


def draw_wave(
    state: CampaignState,
    mutations: Sequence[Mutation],
    input_format: InputFormat,
    validity: Validity | None,
    settings: FuzzSettings,
    guide: Guide,
    limit: int | None,
    track: int = 0,
) -> Candidates:
    """Draw and make the candidates of the next wave of a track.

    Free lanes get a parent each, as far as ``limit`` parents in all allow. Then every parent is mutated; those whose
    mutant is not acceptable are mutated again, up to ``rounds`` times in this wave and ``tries`` times in all. All
    numbers come from one stream per wave and track, so that a wave can be drawn again from the state before it.
    """
    numbers = wave_generator(settings.seed, state.counts.waves, track)
    table = _under_way(state, guide, numbers, limit, track)
    parents = table["parent"]
    chooser = _chooser(state, mutations, settings, parents)
    acceptable = np.zeros(len(table), dtype=bool)
    mutants, comparisons = state.corpus.inputs(parents), state.corpus.comparisons(parents)
    redraws = np.array([mutation.redraws for mutation in mutations])
    for _ in range(settings.rounds):
        rows = np.flatnonzero(~acceptable & (table["tries"] < settings.tries))
        if not len(rows):
            break
        table["tries"][rows] += 1
        _draw_mutations(table, rows, state, numbers, chooser, settings)
        made, compared = _make(state, table[rows], mutations, input_format, settings.compared)
        where = torch.from_numpy(rows).to(mutants.device, non_blocking=True)
        mutants[where], comparisons[where] = made, compared
        acceptable[rows] = True if validity is None else validity(made, compared).cpu().numpy()
        if settings.exempt_styles:
            acceptable[rows] |= any_stage(table[rows], redraws)
    return Candidates(table, acceptable, mutants, comparisons)


def _under_way(
    state: CampaignState, guide: Guide, numbers: np.random.Generator, limit: int | None, track: int
) -> np.ndarray:
    """Return a table of the lanes in use, with a parent in each; free lanes get one that is sampled now."""
    lanes, parents = state.lanes.parents_of(track)
    free = np.flatnonzero(parents < 0)
    if limit is not None:
        free = free[: max(0, limit - state.counts.started)]
    if len(free):
        parents[free] = guide.parents(state, len(free), numbers)
    used = np.flatnonzero(parents >= 0)
    table = no_candidates(len(used))
    table["lane"], table["parent"] = lanes[used], parents[used]
    table["fresh"] = np.isin(used, free)
    table["tries"] = state.lanes.tried(table["lane"], table["fresh"])
    return table


@dataclass(frozen=True, eq=False)
class _Chooser:
    """Choose mutations and their forms, evenly or by weights, whatever the parent.

    Args:
        mutations: to choose from.
        geometric: which of them are.
        weights: of the mutations; evenly without.
        forms: of each mutation's forms; as the mutation chooses where there are none.
    """

    mutations: Sequence[Mutation]
    geometric: np.ndarray
    weights: np.ndarray | None = None
    forms: Sequence[np.ndarray | None] = ()

    def draw(self, rows: np.ndarray, moved: np.ndarray, numbers: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a mutation and its form for rows of the wave, none that is geometric for those that were moved."""
        chances = numbers.random(len(rows))
        which = self._which(np.arange(len(self.geometric)), chances)
        if moved.any():
            which[moved] = self._which(np.flatnonzero(~self.geometric), chances[moved])
        chances, forms = numbers.random(len(rows)), np.zeros(len(rows), dtype=np.int64)
        for index in range(len(self.geometric)):
            mine = np.flatnonzero(which == index)
            forms[mine] = self._forms(index, chances[mine])
        return which, forms

    def _which(self, some: np.ndarray, chances: np.ndarray) -> np.ndarray:
        if self.weights is None:
            return np.asarray(some[choices(chances, len(some))])
        return np.asarray(some[_weighted(self.weights[some], chances)])

    def _forms(self, mutation: int, chances: np.ndarray) -> np.ndarray:
        forms = self.forms[mutation] if self.forms else None
        return self.mutations[mutation].choose(chances) if forms is None else _weighted(forms, chances)


@dataclass(frozen=True, eq=False)
class _ForecastChooser:
    """Choose mutations and their forms by what each is worth for the parent.

    Args:
        mutations: to choose from.
        geometric: which of them are.
        weights: of every row of the wave, mutation and form; what was drawn loses nearly all of it, since a mutant that
            was not acceptable would not be the next time.
    """

    mutations: Sequence[Mutation]
    geometric: np.ndarray
    weights: np.ndarray

    def draw(self, rows: np.ndarray, moved: np.ndarray, numbers: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw a mutation and its form for rows of the wave, none that is geometric for those that were moved."""
        allowed = ~(moved[:, None] & self.geometric)
        shape = self.weights.shape
        weights = np.where(allowed[:, :, None], self.weights[rows], 0.0).reshape(len(rows), shape[1] * shape[2])
        upto = np.cumsum(weights, 1)
        total = upto[:, -1]
        # Below the total even where rounding is up, so that what has no weight behind it is never drawn.
        aim = np.minimum(numbers.random(len(rows)) * total, np.nextafter(total, 0))
        places = (upto <= aim[:, None]).sum(1)
        which, forms = np.divmod(places, shape[2])
        listed = np.array([mutation.forms > 0 for mutation in self.mutations])[which]
        self.weights[rows[listed], which[listed], forms[listed]] *= _DRAWN_KEEPS
        chances = numbers.random(len(rows))
        for index, mutation in enumerate(self.mutations):
            if not mutation.forms:
                mine = np.flatnonzero(which == index)
                forms[mine] = mutation.choose(chances[mine])
        return which, forms


def _chooser(
    state: CampaignState, mutations: Sequence[Mutation], settings: FuzzSettings, parents: np.ndarray
) -> _Chooser | _ForecastChooser:
    """Return what chooses mutations, as the settings say."""
    by, geometric = settings.chosen_by, state.geometric
    if by == "forecast":
        return _ForecastChooser(mutations, geometric, form_worths(state, parents))
    if by == "settings":
        return _Chooser(mutations, geometric, np.maximum(state.experience.forms, 1).astype(np.float64))
    if by == "bandit":
        forms = [form_weights(state, row) for row in range(len(mutations))]
        return _Chooser(mutations, geometric, mutation_weights(state), forms)
    return _Chooser(mutations, geometric)


def _weighted(weights: np.ndarray, chances: np.ndarray) -> np.ndarray:
    upto = np.cumsum(weights)
    return np.asarray(np.minimum(np.searchsorted(upto, chances * upto[-1], side="right"), len(weights) - 1))


def _draw_mutations(
    table: np.ndarray,
    rows: np.ndarray,
    state: CampaignState,
    numbers: np.random.Generator,
    chooser: _Chooser | _ForecastChooser,
    settings: FuzzSettings,
) -> None:
    """Draw the mutations of some candidates, and their settings, and write them into the table.

    A lineage gets at most one geometric mutation where ``move_once`` says so. With ``stack`` above 1, each candidate
    gets one to ``stack`` mutations; where all of them are geometric, a second one is not to be had.
    """
    moved = state.corpus.entries["moved"][table["parent"][rows]] & settings.move_once
    applied = _draw_stage(chooser, rows, moved, numbers)
    set_stage(table, rows, 0, applied)
    table["then_mutation"][rows] = -1
    if settings.stack == 1:
        return
    counts = 1 + choices(numbers.random(len(rows)), settings.stack)
    for stage in range(1, settings.stack):
        moved = moved | (state.geometric[applied["mutation"]] & settings.move_once)
        more = counts > stage
        if state.geometric.all():
            more &= ~moved
        rows, moved, counts = rows[more], moved[more], counts[more]
        applied = _draw_stage(chooser, rows, moved, numbers)
        set_stage(table, rows, stage, applied)


def _draw_stage(
    chooser: _Chooser | _ForecastChooser, rows: np.ndarray, moved: np.ndarray, numbers: np.random.Generator
) -> np.ndarray:
    """Draw a mutation and its setting for rows of the wave; ``row`` counts the inputs of the same mutation."""
    applied = np.zeros(len(rows), APPLIED)
    applied["mutation"], applied["setting"] = chooser.draw(rows, moved, numbers)
    for index in range(len(chooser.mutations)):
        mine = np.flatnonzero(applied["mutation"] == index)
        applied["row"][mine], applied["batch_size"][mine] = np.arange(len(mine)), len(mine)
    return applied


def _make(
    state: CampaignState,
    table: np.ndarray,
    mutations: Sequence[Mutation],
    input_format: InputFormat,
    compared: str,
) -> tuple[Tensor, Tensor]:
    """Return mutants, and what each is to be compared with.

    That is the root input, moved where its lineage has been (``compared="moved"``) or as it is (``"root"``), or the
    parent (``"parent"``).
    """
    inputs = state.corpus.inputs(table["parent"])
    comparisons = inputs if compared == "parent" else state.corpus.comparisons(table["parent"])
    for rows, applied in stages(table):
        where = torch.from_numpy(rows).to(inputs.device, non_blocking=True)
        inputs = inputs.index_copy(0, where, mutated(inputs[where], applied, mutations, input_format))
        moving = np.flatnonzero(state.geometric[applied["mutation"]])
        if compared == "moved" and len(moving):
            where = torch.from_numpy(rows[moving]).to(inputs.device, non_blocking=True)
            comparisons = comparisons.index_copy(
                0, where, mutated(comparisons[where], applied[moving], mutations, input_format)
            )
    return inputs, comparisons


def mutated(inputs: Tensor, applied: np.ndarray, mutations: Sequence[Mutation], input_format: InputFormat) -> Tensor:
    """Return stored inputs, each under one mutation; ``applied`` has the columns that repeat it."""
    decoded = input_format.decode(inputs)
    result = inputs.clone()
    with torch.no_grad():
        for index in np.unique(applied["mutation"]):
            rows = np.flatnonzero(applied["mutation"] == index)
            where = torch.from_numpy(rows).to(inputs.device, non_blocking=True)
            draw = MutationDraw.of_table(applied[rows])
            result[where] = input_format.encode(mutations[index].apply(decoded[where], draw)).to(result.dtype)
    return result


def follow(
    roots: Tensor,
    lineages: Sequence[Sequence[AppliedMutation]],
    mutations: Sequence[Mutation],
    input_format: InputFormat,
    compared: str = "moved",
) -> tuple[Tensor, Tensor]:
    """Return root inputs after their lineages, and what each is to be compared with, see ``_make``.

    The parent is what the last mutation was applied to.
    """
    inputs, comparisons = roots.clone(), roots.clone()
    for depth in range(max((len(steps) for steps in lineages), default=0)):
        rows = np.array([row for row, steps in enumerate(lineages) if len(steps) > depth])
        applied = applied_table(lineages[row][depth] for row in rows)
        where = torch.from_numpy(rows).to(roots.device)
        if compared == "parent":
            comparisons[where] = inputs[where]
        inputs[where] = mutated(inputs[where], applied, mutations, input_format)
        moving = np.array([mutations[index].geometric for index in applied["mutation"]])
        if compared == "moved" and moving.any():
            where = torch.from_numpy(rows[moving]).to(roots.device)
            comparisons[where] = mutated(comparisons[where], applied[moving], mutations, input_format)
    return inputs, comparisons
