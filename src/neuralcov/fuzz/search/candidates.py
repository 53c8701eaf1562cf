"""The candidates of a wave: seeds and mutations drawn, mutants made and checked, all of a kind at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.corpus import AppliedMutation
from neuralcov.fuzz.campaign.state import CampaignState
from neuralcov.fuzz.formats import InputFormat
from neuralcov.fuzz.mutations import Mutation, MutationDraw
from neuralcov.fuzz.randomness import choices, dice
from neuralcov.fuzz.search.seeds import Schedule
from neuralcov.fuzz.validity import Validity


@dataclass(frozen=True, eq=False)
class Candidates:
    """One candidate per seed under way, a row each; see :class:`~neuralcov.fuzz.campaign.log.WaveRecord`.

    ``columns`` holds mutation, setting, place and size. ``valid`` is on the host, ``mutants`` and ``references``,
    what each is compared with, are on the device.
    """

    slot: np.ndarray
    seed: np.ndarray
    fresh: np.ndarray
    tries: np.ndarray
    columns: np.ndarray
    valid: np.ndarray
    mutants: Tensor
    references: Tensor


def draw_wave(
    book: CampaignState,
    mutations: Sequence[Mutation],
    space: InputFormat,
    validity: Validity | None,
    *,
    schedule: Schedule,
    seed: int,
    rounds: int,
    tries: int,
    limit: int | None,
) -> Candidates:
    """The candidates of the next wave.

    Slots that are free get a seed each, as far as ``limit`` seeds in all allow. Then every seed is mutated; those
    whose mutant is not valid are mutated again, up to ``rounds`` times in this wave and ``tries`` times in all.
    """
    numbers = dice(seed, book.tally.waves)
    slot, seeds, fresh = _under_way(book, schedule, numbers, limit)
    tried = np.where(fresh, 0, book.tried[slot]).astype(np.int16)
    columns = np.zeros((len(slot), 4), dtype=np.int64)
    valid = np.zeros(len(slot), dtype=bool)
    mutants, references = book.corpus.inputs(seeds), book.corpus.references(seeds)
    for _ in range(rounds):
        rows = np.flatnonzero(~valid & (tried < tries))
        if not len(rows):
            break
        tried[rows] += 1
        columns[rows] = _draw(mutations, book.corpus.entries["moved"][seeds[rows]], numbers)
        made, compared = _make(book, seeds[rows], columns[rows], mutations, space)
        where = torch.from_numpy(rows).to(mutants.device, non_blocking=True)
        mutants[where], references[where] = made, compared
        valid[rows] = True if validity is None else validity(made, compared).cpu().numpy()
    return Candidates(slot, seeds, fresh, tried, columns, valid, mutants, references)


def _under_way(
    book: CampaignState, schedule: Schedule, numbers: np.random.Generator, limit: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slots in use, their seeds, and which of these were sampled just now."""
    seeds = book.seeds.copy()
    free = np.flatnonzero(seeds < 0)
    if limit is not None:
        free = free[: max(0, limit - book.tally.started)]
    if len(free):
        seeds[free] = schedule.sample(book.corpus.entries["picks"], book.usable, numbers.random(len(free)))
    slot = np.flatnonzero(seeds >= 0)
    return slot, seeds[slot], np.isin(slot, free)


def _draw(mutations: Sequence[Mutation], moved: np.ndarray, numbers: np.random.Generator) -> np.ndarray:
    """Mutation, setting, place and size for each input; no geometric mutation for a lineage that holds one."""
    kinds = _draw_kinds(mutations, moved, numbers.random(len(moved)))
    chances = numbers.random(len(moved))
    columns = np.zeros((len(moved), 4), dtype=np.int64)
    columns[:, 0] = kinds
    for index, mutation in enumerate(mutations):
        rows = np.flatnonzero(kinds == index)
        columns[rows, 1] = mutation.choose(chances[rows])
        columns[rows, 2], columns[rows, 3] = np.arange(len(rows)), len(rows)
    return columns


def _make(
    book: CampaignState, seeds: np.ndarray, columns: np.ndarray, mutations: Sequence[Mutation], space: InputFormat
) -> tuple[Tensor, Tensor]:
    """Mutants, and what each is to be compared with: the root input, moved where its lineage has been."""
    references = book.corpus.references(seeds)
    rows = np.flatnonzero(np.array([mutation.geometric for mutation in mutations])[columns[:, 0]])
    if len(rows):
        where = torch.from_numpy(rows).to(references.device, non_blocking=True)
        references[where] = mutated(references[where], columns[rows], mutations, space)
    return mutated(book.corpus.inputs(seeds), columns, mutations, space), references


def mutated(inputs: Tensor, columns: np.ndarray, mutations: Sequence[Mutation], space: InputFormat) -> Tensor:
    """Stored inputs, each under one mutation; ``columns`` holds mutation, setting, place and size of each."""
    opened = space.decode(inputs)
    result = inputs.clone()
    with torch.no_grad():
        for index in np.unique(columns[:, 0]):
            rows = np.flatnonzero(columns[:, 0] == index)
            where = torch.from_numpy(rows).to(inputs.device, non_blocking=True)
            draw = MutationDraw(columns[rows, 1], columns[rows, 2], columns[rows, 3])
            result[where] = space.encode(mutations[index].apply(opened[where], draw)).to(result.dtype)
    return result


def follow(
    roots: Tensor, lineages: Sequence[Sequence[AppliedMutation]], mutations: Sequence[Mutation], space: InputFormat
) -> tuple[Tensor, Tensor]:
    """Root inputs after their lineages, and the root inputs after the geometric mutations in them alone."""
    inputs, references = roots.clone(), roots.clone()
    for depth in range(max((len(steps) for steps in lineages), default=0)):
        rows = np.array([row for row, steps in enumerate(lineages) if len(steps) > depth])
        taken = [lineages[row][depth] for row in rows]
        columns = np.array([[step.mutation, step.setting, step.place, step.size] for step in taken])
        where = torch.from_numpy(rows).to(roots.device)
        inputs[where] = mutated(inputs[where], columns, mutations, space)
        moving = np.array([mutations[step.mutation].geometric for step in taken])
        if moving.any():
            where = torch.from_numpy(rows[moving]).to(roots.device)
            references[where] = mutated(references[where], columns[moving], mutations, space)
    return inputs, references


def _draw_kinds(mutations: Sequence[Mutation], moved: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Any mutation, but none that is geometric for a lineage that holds one already."""
    every = np.arange(len(mutations))
    still = np.array([index for index, mutation in enumerate(mutations) if not mutation.geometric], dtype=np.int64)
    kinds = every[choices(chances, len(every))]
    if moved.any():
        kinds[moved] = still[choices(chances[moved], len(still))]
    return np.asarray(kinds)
