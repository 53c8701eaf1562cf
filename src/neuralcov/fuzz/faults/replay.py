"""Run faults again, and make them smaller by leaving mutations of their lineage out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.fuzz.campaign.log import EXCEPTION, FAULT_TYPES, NOT_FINITE, TIME_OUT, AppliedMutation
from neuralcov.fuzz.faults.fault import Fault
from neuralcov.fuzz.search.candidates import follow
from neuralcov.fuzz.search.wave import Search

_BREAKS = frozenset({FAULT_TYPES[NOT_FINITE], FAULT_TYPES[EXCEPTION], FAULT_TYPES[TIME_OUT]})


@dataclass(frozen=True, eq=False)
class Replay:
    """Say what a second look at a fault gave.

    Args:
        fault: as it was saved.
        fault_types: what is wrong with the saved input now.
        after: the class it is predicted as now.
        rebuilt: whether the mutations, applied to the root input anew, give the saved input to the last bit.
    """

    fault: Fault
    fault_types: tuple[str, ...]
    after: int | None
    rebuilt: bool

    @property
    def reproduced(self) -> bool:
        """Return whether the saved input shows everything it showed, with the same prediction."""
        return set(self.fault.fault_types) <= set(self.fault_types) and self.after == self.fault.after

    @property
    def still_there(self) -> bool:
        """Return whether the saved input still shows one of its faults, or breaks the model."""
        return bool(set(self.fault_types) & {*self.fault.fault_types, *_BREAKS})


def replay(search: Search, faults: Sequence[Fault]) -> list[Replay]:
    """Look at faults again, in batches."""
    found: list[Replay] = []
    corpus = search.state.corpus
    for some in _batches(search, faults):
        roots = np.array([fault.root for fault in some], dtype=np.int64)
        saved = torch.stack([fault.input for fault in some]).to(corpus.device)
        bits, predictions = search.examine(saved, roots)
        lineages = [fault.steps for fault in some]
        rebuilt, _ = follow(corpus.inputs(roots), lineages, search.mutations, search.input_format)
        same = (rebuilt == saved).flatten(1).all(1).tolist()
        for row, fault in enumerate(some):
            names = search.checker.names(int(bits[row]))
            found.append(Replay(fault, names, _class(predictions[row]), same[row]))
    return found


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Hold a fault with as few mutations as show it.

    ``steps`` are those that are needed, ``input`` is what they make of the root input; both are the fault's own
    where nothing could be left out.
    """

    fault: Fault
    steps: tuple[AppliedMutation, ...]
    input: Tensor

    @property
    def smaller(self) -> bool:
        """Return whether anything could be left out."""
        return len(self.steps) < len(self.fault.steps)


def shrink(search: Search, faults: Sequence[Fault]) -> list[Shrunk]:
    """Leave out one mutation after the other, the latest first, and over again until none can go.

    A mutation may go if what is left is acceptable, shows the same fault types and is predicted as the same class.
    All faults of a batch are tried together.
    """
    return [entry for some in _batches(search, faults) for entry in _shrink_batch(search, some)]


def _batches(search: Search, faults: Sequence[Fault]) -> list[Sequence[Fault]]:
    size = search.settings.batch
    return [faults[start : start + size] for start in range(0, len(faults), size)]


def _shrink_batch(search: Search, faults: Sequence[Fault]) -> list[Shrunk]:
    """Shrink faults, the i-th mutation from the end of all lineages at once.

    A round tries every place of the lineages that the round before changed; a fault that a whole round leaves as it
    is needs all its mutations. Every other round leaves out at least one, so that rounds come to an end.
    """
    best = [Shrunk(fault, fault.steps, fault.input) for fault in faults]
    changing = set(range(len(faults)))
    while changing:
        changed: set[int] = set()
        for back in range(1, max(len(best[row].steps) for row in changing) + 1):
            trying = [row for row in sorted(changing) if 1 < len(best[row].steps) >= back]
            shorter = [_without(best[row].steps, len(best[row].steps) - back) for row in trying]
            inputs = _same_faults(search, [faults[row] for row in trying], shorter)
            for row, steps, found in zip(trying, shorter, inputs, strict=True):
                if found is not None:
                    best[row] = Shrunk(faults[row], steps, found)
                    changed.add(row)
        changing = changed
    return best


def _same_faults(
    search: Search, faults: Sequence[Fault], lineages: Sequence[tuple[AppliedMutation, ...]]
) -> list[Tensor | None]:
    """Return, for each fault, the input that its shorter lineage makes, if that is still the same fault."""
    if not faults:
        return []
    roots = np.array([fault.root for fault in faults], dtype=np.int64)
    corpus = search.state.corpus
    inputs, comparisons = follow(
        corpus.inputs(roots), lineages, search.mutations, search.input_format, search.settings.compared
    )
    bits, predictions = search.examine(inputs, roots)
    acceptable = np.ones(len(faults), dtype=bool)
    if search.settings.checks_validity:
        acceptable = search.validity(inputs, comparisons).cpu().numpy()
        if search.settings.exempt_styles:
            acceptable |= np.array([search.mutations[steps[-1].mutation].redraws for steps in lineages])
    host = inputs.cpu()
    return [
        host[row]
        if acceptable[row]
        and set(fault.fault_types) <= set(search.checker.names(int(bits[row])))
        and _class(predictions[row]) == fault.after
        else None
        for row, fault in enumerate(faults)
    ]


def _without(steps: tuple[AppliedMutation, ...], place: int) -> tuple[AppliedMutation, ...]:
    return steps[:place] + steps[place + 1 :]


def _class(number: int) -> int | None:
    return None if number < 0 else int(number)
