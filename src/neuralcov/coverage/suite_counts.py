"""What is counted of a suite whatever the criteria: classes, right answers, inputs that behave alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion
from neuralcov.core.shapes import Bool, Int
from neuralcov.coverage.channels import ChannelCounts
from neuralcov.coverage.sketch import Sketch
from neuralcov.results.scale import ChannelFacts

# Under this name a batch carries classes that the model chose and no criterion asked for.
DECISIONS = "decisions"
# Classes are counted apart up to so many.
_MOST_CLASSES = 100_000


def decisions_of(batch: Activations) -> Int[Tensor, "batch"] | None:
    """Return the classes that the model chose, asked for by a criterion or not; ``None`` where nobody knows."""
    return batch.predictions if batch.predictions is not None else batch.shared(DECISIONS, lambda: None)


def with_decisions(batch: Activations, *, asked: bool) -> Activations:
    """Return a batch without predictions if no criterion asked for them; ``decisions_of`` still finds them."""
    if asked or batch.predictions is None:
        return batch
    bare = replace(batch, predictions=None)
    bare.shared(DECISIONS, lambda: batch.predictions)
    return bare


@dataclass(frozen=True, eq=False)
class _Pending:
    """Hold what is counted of one batch, on the device."""

    labels: Tensor | None
    decisions: Tensor | None
    likeness: Tensor | None
    taken: Tensor | None
    moments: Tensor | None


class SuiteCounts:
    """Count the inputs of a suite by label and by decision, those that are right, and those that behave alike."""

    def __init__(self) -> None:
        self.labels: dict[int, int] = {}
        self.decisions: dict[int, int] = {}
        self.judged = 0
        """How many inputs have both a label and a decision."""
        self.right = 0
        """How many of these the model is right about."""
        self.likeness = Sketch()
        """Words of inputs, the same for inputs that a criterion cannot tell apart in any layer."""
        self.channels: dict[int, ChannelCounts] = {}
        """What was counted of the numbers in inputs, by how many channels these have."""
        self._pending: list[_Pending] = []

    def copy(self) -> Self:
        """Return a copy that goes its own way."""
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        twin._pending = list(self._pending)
        twin.labels, twin.decisions, twin.channels = dict(self.labels), dict(self.decisions), dict(self.channels)
        return twin

    def note(
        self,
        criteria: Sequence[Criterion[Any]],
        batch: Activations,
        taken: Bool[Tensor, "batch"] | None = None,
        decisions: Int[Tensor, "batch"] | None = None,
        moments: Tensor | None = None,
    ) -> None:
        """Note the inputs of a batch, all or those ``taken``, with copies of what will be overwritten.

        Nothing waits for the device.
        """
        # Tokens of unlike inputs may well be alike: the first ones of a decoder are.
        asked = criteria if batch.tokens is None else ()
        likeness = next((found for found in (c.likeness(batch) for c in asked) if found is not None), None)
        # Whoever gave labels may write to them before they are counted; a copy of decisions is one already.
        labels = None if batch.labels is None else batch.labels.clone()
        found = decisions_of(batch) if decisions is None else decisions
        if decisions is None and found is not None:
            found = found.clone()
        told = batch.moments if moments is None else moments
        self._pending.append(_Pending(labels, found, likeness, taken, told))

    def settle(self) -> Self:
        """Count what was noted; wait for the device."""
        pending, self._pending = self._pending, []
        for labelled in (True, False):
            some = [part for part in pending if (part.labels is not None) is labelled]
            for decided in (True, False):
                self._count([part for part in some if (part.decisions is not None) is decided])
        words = [_rows(part.likeness, part.taken) for part in pending if part.likeness is not None]
        if words:
            self.likeness = self.likeness.add(torch.cat(words).cpu().contiguous().numpy().view(np.uint64))
        by_width: dict[int, list[Tensor]] = {}
        for part in pending:
            if part.moments is not None:
                by_width.setdefault(part.moments.shape[1], []).append(_rows(part.moments, part.taken))
        for width, parts in by_width.items():
            known = self.channels.get(width, ChannelCounts.of_none(width))
            self.channels[width] = known.with_inputs(torch.cat(parts).cpu().numpy())
        return self

    def _add_channels(self, counted: ChannelCounts) -> None:
        width = len(counted.means)
        self.channels[width] = self.channels.get(width, ChannelCounts.of_none(width)) + counted

    @property
    def channel_facts(self) -> ChannelFacts | None:
        """What was counted of the numbers in inputs; ``None`` where there are none, or some have other channels."""
        return next(iter(self.channels.values())).facts() if len(self.channels) == 1 else None

    def _count(self, some: Sequence[_Pending]) -> None:
        """Count batches that have the same parts."""
        if not some:
            return
        found = []
        for name, counts in (("labels", self.labels), ("decisions", self.decisions)):
            parts = [_rows(getattr(part, name), part.taken) for part in some if getattr(part, name) is not None]
            if parts:
                classes = torch.cat(parts).cpu().numpy()
                found.append(classes)
                for value, times in zip(*np.unique(classes, return_counts=True), strict=True):
                    if len(counts) < _MOST_CLASSES or int(value) in counts:
                        counts[int(value)] = counts.get(int(value), 0) + int(times)
        if len(found) == 2:
            self.judged += len(found[0])
            self.right += int((found[0] == found[1]).sum())

    def merge(self, other: SuiteCounts) -> None:
        """Take in what another has counted."""
        self.settle()
        other.settle()
        for mine, theirs in ((self.labels, other.labels), (self.decisions, other.decisions)):
            for value, times in theirs.items():
                mine[value] = mine.get(value, 0) + times
        self.judged += other.judged
        self.right += other.right
        self.likeness = self.likeness.merge(other.likeness)
        for counted in other.channels.values():
            self._add_channels(counted)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as files keep it; without the words."""
        self.settle()
        by_class = {
            name: [[value, counts[value]] for value in sorted(counts)]
            for name, counts in (("labels", self.labels), ("decisions", self.decisions))
        }
        channels = [counts.to_json() for counts in self.channels.values()]
        return {**by_class, "judged": self.judged, "right": self.right, "channels": channels}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what a file holds."""
        counts = cls()
        counts.labels = {int(value): int(times) for value, times in content["labels"]}
        counts.decisions = {int(value): int(times) for value, times in content["decisions"]}
        counts.judged, counts.right = int(content["judged"]), int(content["right"])
        # Files of before hold none.
        for channels in content.get("channels", ()):
            counts._add_channels(ChannelCounts.from_json(channels))
        return counts


def _rows(values: Tensor, taken: Tensor | None) -> Tensor:
    return values if taken is None else values[taken.to(values.device)]
