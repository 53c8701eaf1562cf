"""Faults run again: does the model still do it, and do the mutations still lead there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.candidates import follow
from neuralcov.fuzz.engine import Engine, examine
from neuralcov.fuzz.findings import Fault
from neuralcov.fuzz.record import EXCEPTION, KINDS, NOT_FINITE, TIME_OUT

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


def replay(engine: Engine, faults: Sequence[Fault]) -> list[Replay]:
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


def stacked(faults: Sequence[Fault], engine: Engine) -> Tensor:
    """Saved inputs as a batch on the device."""
    return torch.stack([fault.input for fault in faults]).to(engine.book.corpus.inputs(slice(0, 1)).device)


def kind_names(engine: Engine, bits: int) -> tuple[str, ...]:
    """What bits stand for."""
    return tuple(name for bit, name in enumerate(engine.judge.kinds) if bits >> bit & 1)
