"""Faults: what was found wrong, with the way that led there, and groups of faults that are alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from neuralcov.core.counted import counted
from neuralcov.fuzz.campaign.log import AppliedMutation
from neuralcov.fuzz.mutations import Mutation

_NO_CLASS = "none"


@dataclass(frozen=True, eq=False)
class Fault:
    """Tell of one input that the model gets wrong, or breaks at.

    Args:
        number: faults are numbered from 0 as they are found.
        fault_types: what is wrong: ``misprediction``, ``not finite``, ``exception``, ``time-out``, ``disagreement``,
            or the name of a check of the user's own.
        wave: when it was found.
        row: which candidate of the wave it was.
        root: the number of the root input.
        entry: its entry in the corpus; ``None`` if it was not kept there.
        label: the class it should have, where known.
        before: the class the model gives the root input, where it gives one.
        after: the class it gives the mutant; ``None`` if it throws, hangs or computes NaN or infinity.
        steps: the mutations that lead from the root input to it.
        message: what the model threw.
        input: the mutant as it is stored.
    """

    number: int
    fault_types: tuple[str, ...]
    wave: int
    row: int
    root: int
    entry: int | None
    label: int | None
    before: int | None
    after: int | None
    steps: tuple[AppliedMutation, ...]
    message: str | None
    input: Tensor

    @property
    def group(self) -> tuple[str, ...]:
        """Return what it shares with faults that are alike: the class taken for another, or the error thrown."""
        if self.message is not None:
            return (self.fault_types[0], self.message.split(":")[0])
        return (self.fault_types[0], _name(self.label if self.label is not None else self.before), _name(self.after))

    @property
    def stem(self) -> str:
        """Return the name its files begin with."""
        fault_type, *rest = self.group
        words = "-as-".join(rest) if self.message is None else rest[0]
        plain = "".join(sign if sign.isalnum() or sign == "-" else "-" for sign in f"{fault_type}-{words}")
        return f"{self.number:06d}-{plain}"

    def to_json(self, mutations: Sequence[Mutation]) -> dict[str, Any]:
        """Return plain data, with the mutations in words."""
        return {
            "number": self.number,
            "kinds": list(self.fault_types),
            "wave": self.wave,
            "candidate": self.row,
            "root": self.root,
            "entry": self.entry,
            "label": self.label,
            "before": self.before,
            "after": self.after,
            "message": self.message,
            "mutations": described(self.steps, mutations),
            "steps": [[step.mutation, step.setting, step.row, step.batch_size] for step in self.steps],
        }


def described(steps: Iterable[AppliedMutation], mutations: Sequence[Mutation]) -> list[str]:
    """Return mutations in words."""
    return [mutations[step.mutation].describe(step.setting) for step in steps]


def grouped(faults: Iterable[Fault]) -> dict[tuple[str, ...], list[Fault]]:
    """Return faults by group, the largest groups first."""
    groups: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        groups.setdefault(fault.group, []).append(fault)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def best_example(faults: Sequence[Fault]) -> Fault:
    """Return the fault of a group to look at first: of the fewest mutations, the first one found."""
    return min(faults, key=lambda fault: (len(fault.steps), fault.number))


def mutation_counts(lineages: Sequence[Sequence[AppliedMutation]], mutations: Sequence[Mutation]) -> dict[str, int]:
    """Return how many lineages hold each mutation, the most frequent first."""
    held = Counter(index for steps in lineages for index in sorted({step.mutation for step in steps}))
    return {mutations[index].name: count for index, count in held.most_common()}


def main_cause(faults: Sequence[Fault], mutations: Sequence[Mutation]) -> str | None:
    """Say which mutation most faults hold; ``None`` where there are no faults."""
    return _cause([fault.steps for fault in faults], mutations, "hold")


def needed_cause(lineages: Sequence[Sequence[AppliedMutation]], mutations: Sequence[Mutation]) -> str | None:
    """Say which mutation most faults need, given what was left of their lineages when they were shrunk."""
    return _cause(lineages, mutations, "need")


def _cause(lineages: Sequence[Sequence[AppliedMutation]], mutations: Sequence[Mutation], verb: str) -> str | None:
    if not lineages:
        return None
    name, count = next(iter(mutation_counts(lineages, mutations).items()))
    return f"{count:,} of {counted(len(lineages), 'fault')} {verb}{'s' if count == 1 else ''} a {name}"


def group_words(group: tuple[str, ...], classes: Sequence[str] | None = None) -> str:
    """Return a group in words.

    >>> group_words(("misprediction", "3", "5")), group_words(("misprediction", "0", "1"), ["cat", "dog"])
    ('3 taken for 5', 'cat taken for dog')
    >>> group_words(("exception", "ValueError"))
    'exception: ValueError'
    >>> group_words(("not finite", "0", "none"), ["cat", "dog"]), group_words(("blurred", "none", "none"))
    ('not finite, from cat', 'blurred')
    """
    fault_type, *rest = group
    names = [classes[int(name)] if classes is not None and name.isdigit() else name for name in rest]
    if len(names) < 2:
        return f"{fault_type}: {names[0]}"
    if rest[1] == _NO_CLASS:
        return fault_type if rest[0] == _NO_CLASS else f"{fault_type}, from {names[0]}"
    said = f"{names[0]} taken for {names[1]}"
    return said if fault_type == "misprediction" else f"{fault_type}, {said}"


def _name(number: int | None) -> str:
    return _NO_CLASS if number is None else str(number)
