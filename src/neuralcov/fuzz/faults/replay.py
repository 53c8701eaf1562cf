"""Run faults again, and make them smaller by leaving mutations of their lineage out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.corpus import AppliedMutation
from neuralcov.fuzz.campaign.log import EXCEPTION, KINDS, NOT_FINITE, TIME_OUT
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.search.candidates import follow
from neuralcov.fuzz.search.wave import Search, examine

BREAKS = (KINDS[NOT_FINITE], KINDS[EXCEPTION], KINDS[TIME_OUT])


@dataclass(frozen=True, eq=False)
class Replay:
    """What a second look at a fault gave.

    Args:
        fault: as it was saved.
        kinds: what is wrong with the saved input now.
        after: the class it is predicted as now.
        rebuilt: whether the mutations, applied to the root input anew, give the saved input to the last bit.
    """

    fault: Fault
    kinds: tuple[str, ...]
    after: int | None
    rebuilt: bool

    @property
    def reproduced(self) -> bool:
        """Whether the saved input shows everything it showed, with the same prediction."""
        return set(self.fault.kinds) <= set(self.kinds) and self.after == self.fault.after

    @property
    def still_there(self) -> bool:
        """Whether the saved input is still a fault of a kind it had, whatever it is taken for, or breaks the model."""
        return bool(set(self.kinds) & {*self.fault.kinds, *BREAKS})


def replay(engine: Search, faults: Sequence[Fault]) -> list[Replay]:
    """Look at faults again, in batches."""
    found: list[Replay] = []
    for start in range(0, len(faults), engine.rules.batch):
        some = faults[start : start + engine.rules.batch]
        roots = np.array([fault.root for fault in some], dtype=np.int64)
        saved = stacked(some, engine)
        kinds, prediction, _ = examine(engine, saved, roots)
        rebuilt, _ = follow(engine.book.corpus.inputs(roots), [f.steps for f in some], engine.mutations, engine.space)
        same = (rebuilt == saved).flatten(1).all(1).tolist()
        for row, fault in enumerate(some):
            after = None if prediction[row] < 0 else int(prediction[row])
            found.append(Replay(fault, kind_names(engine, int(kinds[row])), after, same[row]))
    return found


def stacked(faults: Sequence[Fault], engine: Search) -> Tensor:
    """Saved inputs as a batch on the device."""
    return torch.stack([fault.input for fault in faults]).to(engine.book.corpus.inputs(slice(0, 1)).device)


def kind_names(engine: Search, bits: int) -> tuple[str, ...]:
    """What bits stand for."""
    return tuple(name for bit, name in enumerate(engine.judge.kinds) if bits >> bit & 1)


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A fault with as few mutations as show it.

    ``steps`` are those that are needed, ``input`` is what they make of the root input; both are the fault's own
    where nothing could be left out.
    """

    fault: Fault
    steps: tuple[AppliedMutation, ...]
    input: Tensor

    @property
    def smaller(self) -> bool:
        """Whether anything could be left out."""
        return len(self.steps) < len(self.fault.steps)


def shrink(engine: Search, faults: Sequence[Fault]) -> list[Shrunk]:
    """Leave out one mutation after the other, the latest first, and over again until none can go.

    A mutation may go if what is left still is valid, shows the same kinds of fault and is predicted as the same class.
    All faults of a batch are tried together.
    """
    found: list[Shrunk] = []
    for start in range(0, len(faults), engine.rules.batch):
        some = faults[start : start + engine.rules.batch]
        found += _shrink_batch(engine, some)
    return found


def _shrink_batch(engine: Search, faults: Sequence[Fault]) -> list[Shrunk]:
    best = [Shrunk(fault, fault.steps, fault.input) for fault in faults]
    changing = set(range(len(faults)))
    while changing:
        changed: set[int] = set()
        for back in range(1, max(len(best[row].steps) for row in changing) + 1):
            trying = [row for row in sorted(changing) if 1 < len(best[row].steps) >= back]
            shorter = [_without(best[row].steps, len(best[row].steps) - back) for row in trying]
            for row, steps, still in zip(
                trying, shorter, _still(engine, [faults[r] for r in trying], shorter), strict=True
            ):
                if still is not None:
                    best[row] = Shrunk(faults[row], steps, still)
                    changed.add(row)
        changing = changed
    return best


def _still(
    engine: Search, faults: Sequence[Fault], lineages: Sequence[tuple[AppliedMutation, ...]]
) -> list[Tensor | None]:
    """For each fault, the input that fewer mutations make, if it is still the same fault."""
    if not faults:
        return []
    roots = np.array([fault.root for fault in faults], dtype=np.int64)
    inputs, references = follow(engine.book.corpus.inputs(roots), lineages, engine.mutations, engine.space)
    kinds, prediction, _ = examine(engine, inputs, roots)
    valid = np.ones(len(faults), dtype=bool)
    if not engine.rules.random:
        valid = engine.validity(inputs, references).cpu().numpy()
    host = inputs.cpu()
    return [
        host[row]
        if valid[row]
        and set(fault.kinds) <= set(kind_names(engine, int(kinds[row])))
        and (None if prediction[row] < 0 else int(prediction[row])) == fault.after
        else None
        for row, fault in enumerate(faults)
    ]


def _without(steps: tuple[AppliedMutation, ...], place: int) -> tuple[AppliedMutation, ...]:
    return steps[:place] + steps[place + 1 :]
