"""Faults made smaller: mutations of a lineage are left out as long as the fault stays what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from neuralcov.fuzz.candidates import follow
from neuralcov.fuzz.corpus import Step
from neuralcov.fuzz.engine import Engine, examine
from neuralcov.fuzz.findings import Fault
from neuralcov.fuzz.replay import kind_names


@dataclass(frozen=True, eq=False)
class Shrunk:
    """A fault with as few mutations as show it.

    ``steps`` are those that are needed, ``input`` is what they make of the root input; both are the fault's own
    where nothing could be left out.
    """

    fault: Fault
    steps: tuple[Step, ...]
    input: Tensor

    @property
    def smaller(self) -> bool:
        """Whether anything could be left out."""
        return len(self.steps) < len(self.fault.steps)


def shrink(engine: Engine, faults: Sequence[Fault]) -> list[Shrunk]:
    """Leave out one mutation after the other, the latest first, and over again until none can go.

    A mutation may go if what is left still is valid, shows the same kinds of fault and is predicted as the same class.
    All faults of a batch are tried together.
    """
    found: list[Shrunk] = []
    for start in range(0, len(faults), engine.rules.batch):
        some = faults[start : start + engine.rules.batch]
        found += _shrink_batch(engine, some)
    return found


def _shrink_batch(engine: Engine, faults: Sequence[Fault]) -> list[Shrunk]:
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


def _still(engine: Engine, faults: Sequence[Fault], lineages: Sequence[tuple[Step, ...]]) -> list[Tensor | None]:
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


def _without(steps: tuple[Step, ...], place: int) -> tuple[Step, ...]:
    return steps[:place] + steps[place + 1 :]
