"""Keep few inputs that cover nearly as much as all: lazy greedy search, with a bound on how far it is from the fewest.

Every criterion c must come to at least ``keep`` of F_c, its value for all inputs. So let
f(S) = Σ_c min(v_c(S), keep·F_c)/F_c, which reaches its greatest value exactly where every criterion is there. It is
submodular as the v_c are: what an input adds only falls as others are taken. Greedy search takes the input that adds
most, the first of several.

Lazy: a gain found earlier is an upper bound of what it is now. Inputs wait in a heap by their last known gains; the
first is judged anew, together with those right behind it, and taken once its gain is both fresh and first. That is the
input that plain greedy search would take.

Two bounds. Let R be what f lacks before the last step, R₀ all of it, and k the fewest inputs that reach it. Every step
takes at least 1/k of what is lacking, so R ≤ R₀·(1 − 1/k)^(n−1), and n ≤ 1 + k·ln(R₀/R) (Wolsey, 1982). And whatever
was taken, k inputs add no more than the k largest gains: if it takes m gains to make up what is lacking, k ≥ m.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.core.criterion import SUBMODULAR, Criterion
from neuralcov.core.errors import CalibrationError, HyperParameterError, InputError, MemoryBudgetError
from neuralcov.core.guards import ordinary_tensors
from neuralcov.core.memory import parse_bytes, show_bytes
from neuralcov.coverage.coverage import Coverage
from neuralcov.coverage.loaders import tracked
from neuralcov.rank.columns import Names, require_inputs
from neuralcov.rank.queue import Queue
from neuralcov.tap.inputs import Lengths

# Inputs judged together at most: the more, the fewer calls, and the more gains that nobody asks for.
_AT_ONCE = 64
_MOST_SINGLES = 1024


@dataclass(frozen=True, eq=False)
class Minimised(Queue):
    """The inputs to keep, in the order in which they were taken; the score is the share of the goal reached so far.

    Args:
        kept: by criterion, its value for the kept inputs.
        whole: by criterion, its value for all inputs.
        at_least: no fewer inputs than that keep as much.
        factor: so many times the fewest possible at most, by that or by the bound of greedy search.
    """

    kept: dict[str, float] = field(default_factory=dict)
    whole: dict[str, float] = field(default_factory=dict)
    at_least: int = 0
    factor: float = 1.0


def minimise(
    coverage: Coverage,
    data: Iterable[Any],
    keep: float = 0.95,
    *,
    lengths: Lengths | None = None,
    memory: str | int = "8GiB",
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Minimised:
    """Keep few inputs whose coverage is at least ``keep`` times that of all; the coverage observes nothing.

    Args:
        coverage: of the model, calibrated where its criteria need that, with submodular criteria only: NC, KMNC, NBC,
            SNAC, TKNC, TKNP, LSC, DSC, MDSC, NPC, LCC(over="mean").
        data: a loader of the suite.
        keep: the share of every criterion's value to keep, above 0 and at most 1.
        lengths: as for ``assess``.
        memory: what activations of the suite may take while they are searched.
        folder: where ids that are relative paths begin.
        progress: show bars; by default only in a terminal.

    Examples:
        >>> import torch, neuralcov as nc
        >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> few = nc.minimise(nc.Coverage(model, [nc.TKNC(1)]), [x], keep=1.0)
        >>> few.kept == few.whole, len(few) < 20
        (True, True)
    """
    if isinstance(keep, bool) or not isinstance(keep, (int, float)) or not 0 < keep <= 1:
        raise InputError(f"keep={keep!r}: expected a share above 0 and at most 1")
    require_submodular(coverage.criteria)
    names = Names()
    pool = _gathered(coverage, data, names, lengths, parse_bytes(memory), progress)
    return _searched(pool, float(keep), names, None if folder is None else Path(folder), progress)


def require_submodular(criteria: Sequence[Criterion[Any]]) -> None:
    """Refuse criteria whose gains may rise as inputs are taken: greedy search has no bound for them."""
    for criterion in criteria:
        if SUBMODULAR not in criterion.promises:
            instead = "; take LCC(over='mean')" if "over" in criterion.parameters else ""
            raise HyperParameterError(
                f"{criterion.name} is not submodular: an input may add more to it after others than alone, so that "
                f"nothing says how near greedy search comes to the fewest inputs{instead}"
            )
        if criterion.learns and criterion.learnt is None:
            raise CalibrationError(f"{criterion.name} needs calibration: call calibrate(...) with training data first")


@dataclass(frozen=True, eq=False)
class _Pool:
    """Inputs that add something, with what they add to nothing.

    Args:
        criteria: those that have a value for all inputs.
        whole: their values.
        batch: activations of the inputs.
        positions: of the inputs in the data.
        gains: of each input alone, a column for each criterion.
        all_values: the values of every criterion.
    """

    criteria: tuple[Criterion[Any], ...]
    whole: Tensor
    batch: Activations | None
    positions: np.ndarray
    gains: Tensor
    all_values: dict[str, float]


@ordinary_tensors
def _gathered(
    coverage: Coverage, data: Iterable[Any], names: Names, lengths: Lengths | None, budget: int, progress: bool | None
) -> _Pool:
    """Run the model on the suite, measure it whole, and keep the activations of inputs that add something."""
    criteria = coverage.criteria
    states: list[Any] = []
    empty: list[Any] = []
    parts: list[Activations] = []
    gains: list[Tensor] = []
    positions: list[np.ndarray] = []
    size = 0
    for run in coverage.runs(data, lengths=lengths, progress=progress, title="measuring", relevance=True):
        batch = run.activations
        assert batch is not None
        if not states:
            empty = [criterion.init(batch.layout) for criterion in criteria]
            states = [criterion.init(batch.layout) for criterion in criteria]
        _require_needs(criteria, batch)
        alone = torch.stack([c.gain(state, batch) for c, state in zip(criteria, empty, strict=True)], dim=1)
        states = [c.observe(state, batch, donate=True) for c, state in zip(criteria, states, strict=True)]
        useful = (alone > 0).any(1)
        part = batch.take(useful)
        size += _bytes(part)
        if size > budget:
            raise MemoryBudgetError(
                f"the activations of {counted(names.count + run.size, 'input')} take more than "
                f"memory={show_bytes(budget)}: allow "
                "more, or choose fewer layers"
            )
        positions.append(names.count + useful.nonzero()[:, 0].cpu().numpy())
        names.add(run)
        parts.append(part)
        gains.append(alone[useful])
    require_inputs(names.count)
    values = {c.name: float(c.value(state)) for c, state in zip(criteria, states, strict=True)}
    counting = [index for index, criterion in enumerate(criteria) if values[criterion.name] > 0]
    kept = [part for part in parts if part.size]
    return _Pool(
        tuple(criteria[index] for index in counting),
        torch.tensor([values[criteria[index].name] for index in counting], dtype=torch.float64),
        Activations.cat(kept) if kept else None,
        np.concatenate(positions),
        torch.cat(gains)[:, counting].cpu(),
        values,
    )


def _require_needs(criteria: Sequence[Criterion[Any]], batch: Activations) -> None:
    for criterion in criteria:
        for need in sorted(criterion.needs):
            if getattr(batch, need) is None:
                raise InputError(f"{criterion.name} needs {need}: the data must bring them")


def _bytes(batch: Activations) -> int:
    tensors = [*batch.layers.values(), *(batch.relevance or {}).values()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(eq=False)
class _Search:
    """Greedy search in progress."""

    pool: _Pool
    goals: Tensor
    states: list[Any]
    values: Tensor
    singles: dict[int, Activations] = field(default_factory=dict)

    def _rows(self, rows: list[int]) -> Activations:
        assert self.pool.batch is not None
        return self.pool.batch.take(torch.tensor(rows))

    def _alone(self, row: int) -> Activations:
        """Return one input. Those asked for last are kept, with what criteria found out about them."""
        if row not in self.singles:
            if len(self.singles) >= _MOST_SINGLES:
                del self.singles[next(iter(self.singles))]
            self.singles[row] = self._rows([row])
        return self.singles[row]

    @property
    def lacking(self) -> float:
        """What f lacks, in shares of the criteria's values for all inputs."""
        return float(((self.goals - self.values).clamp(min=0) / self.pool.whole).sum())

    def worth(self, gains: Tensor) -> list[float]:
        """Return what inputs with such gains add to f."""
        useful = torch.minimum(gains, (self.goals - self.values).clamp(min=0))
        found: list[float] = (useful / self.pool.whole).sum(1).tolist()
        return found

    def judge(self, rows: list[int]) -> list[float]:
        """Return what some inputs add to f now."""
        batch = self._alone(rows[0]) if len(rows) == 1 else self._rows(rows)
        gains = [c.gain(state, batch).cpu() for c, state in zip(self.pool.criteria, self.states, strict=True)]
        return self.worth(torch.stack(gains, dim=1))

    def take(self, row: int) -> None:
        """Take an input."""
        alone = self._alone(row)
        pairs = zip(self.pool.criteria, self.states, strict=True)
        self.states = [criterion.observe(state, alone, donate=True) for criterion, state in pairs]
        values = [c.value(state).cpu() for c, state in zip(self.pool.criteria, self.states, strict=True)]
        self.values = torch.stack(values)

    @property
    def reached(self) -> bool:
        """Whether every criterion is where it should be."""
        return bool((self.values >= self.goals).all())


@ordinary_tensors
def _searched(pool: _Pool, keep: float, names: Names, folder: Path | None, progress: bool | None) -> Minimised:
    count = len(pool.criteria)
    states = [] if pool.batch is None else [criterion.init(pool.batch.layout) for criterion in pool.criteria]
    search = _Search(pool, keep * pool.whole, states, torch.zeros(count, dtype=torch.float64))
    total = search.lacking
    taken: list[int] = []
    shares: list[float] = []
    last_lack, at_least = total, 0
    heap = [(-worth, row) for row, worth in enumerate(search.worth(pool.gains) if count else []) if worth > 0]
    heapq.heapify(heap)
    next_bound = 1
    for _ in tracked(range(len(heap)), "minimising", progress):
        if search.reached:
            break
        if len(taken) + 1 >= next_bound:
            at_least, next_bound = max(at_least, fewest(heap, search.lacking)), 2 * next_bound
        row = _best(heap, search)
        if row is None:
            break
        last_lack = search.lacking
        search.take(row)
        taken.append(row)
        shares.append(1 - search.lacking / total)
    positions = pool.positions[taken] if taken else np.empty(0, dtype=np.int64)
    scores = np.zeros(names.count)
    scores[positions] = shares
    steps = dict(zip(positions.tolist(), np.diff(shares, prepend=0.0).tolist(), strict=True))
    kept = pool.all_values | dict(zip((c.name for c in pool.criteria), search.values.tolist(), strict=True))
    at_least = min(max(at_least, int(bool(taken))), len(taken))
    return Minimised(
        positions,
        scores,
        names,
        lambda position: f"adds {steps[position]:.2%} of the goal, {scores[position]:.1%} with those before it",
        folder,
        kept=kept,
        whole=pool.all_values,
        at_least=at_least,
        factor=min(_factor(total, last_lack), len(taken) / max(1, at_least)) if taken else 1.0,
    )


def _best(heap: list[tuple[float, int]], search: _Search) -> int | None:
    """Return the input that adds most now, the first of several, and take it off the heap; ``None`` if none adds."""
    fresh: set[int] = set()
    at_once = 1
    while heap:
        if heap[0][1] in fresh:
            return heapq.heappop(heap)[1]
        rows: list[int] = []
        while heap and len(rows) < at_once and heap[0][1] not in fresh:
            rows.append(heapq.heappop(heap)[1])
        # Mostly the first is still the best; where it is not, many may have to be asked.
        at_once = min(2 * at_once, _AT_ONCE)
        for row, worth in zip(rows, search.judge(rows), strict=True):
            # What adds nothing now adds nothing ever.
            if worth > 0:
                heapq.heappush(heap, (-worth, row))
                fresh.add(row)
    return None


def fewest(heap: Iterable[tuple[float, int]], lacking: float) -> int:
    """Return how many inputs it takes at least to make up what is lacking, given bounds of what each adds.

    >>> fewest([(-0.5, 0), (-0.3, 1), (-0.1, 2)], 0.7)
    2
    """
    gains = np.sort(np.array([-gain for gain, _ in heap]))[::-1].cumsum()
    # Rounding of the sum must not ask for one input too many.
    return min(len(gains), int(np.searchsorted(gains, lacking * (1 - 1e-9))) + 1)


def _factor(total: float, last_lack: float) -> float:
    """Return 1 + ln(R₀/R): greedy search keeps at most so many times the fewest inputs."""
    return 1 + math.log(total / last_lack) if 0 < last_lack < total else 1.0
