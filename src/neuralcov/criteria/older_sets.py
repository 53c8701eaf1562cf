"""The states of TKNP and the surprise criteria as files hold them that do not count kinds, and what they are today.

These names and fields stay as long as such files are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.counts import no_counts
from neuralcov.core.criterion import State, widths_of
from neuralcov.core.layout import Layout
from neuralcov.core.records import Record
from neuralcov.core.shapes import Float, Int
from neuralcov.criteria.distinct import DistinctState
from neuralcov.criteria.kind_set import UNKNOWN, KindSet, as_members


@dataclass(frozen=True, eq=False)
class KeySet(Record, name="key-set", free=["longest"]):
    """Distinct keys."""

    words: Int[Tensor, "n 2"]
    longest: int = 1


@dataclass(frozen=True, eq=False)
class Patterns(State, name="patterns"):
    """The keys of the patterns that TKNP saw."""

    seen: KeySet

    @classmethod
    def empty(cls, layout: Layout) -> Patterns:
        """Return the form of such states."""
        words = torch.empty(0, 2, dtype=torch.int64, device=layout.device)
        return cls(no_counts(layout), widths_of(layout), KeySet(words))

    def as_distinct(self) -> DistinctState:
        """Return the same patterns, shown nobody knows how often."""
        return _distinct(self, self.seen.words)


@dataclass(frozen=True, eq=False)
class BucketSet(Record, name="bucket-set"):
    """Distinct whole numbers as float64."""

    numbers: Float[Tensor, "n"]


@dataclass(frozen=True, eq=False)
class Buckets(State, name="buckets"):
    """The numbers of the buckets that a surprise criterion covered."""

    covered: BucketSet

    @classmethod
    def empty(cls, layout: Layout) -> Buckets:
        """Return the form of such states."""
        numbers = torch.empty(0, dtype=torch.float64, device=layout.device)
        return cls(no_counts(layout), widths_of(layout), BucketSet(numbers))

    def as_distinct(self) -> DistinctState:
        """Return the same buckets, shown nobody knows how often."""
        return _distinct(self, bucket_keys(self.covered.numbers))


def bucket_keys(buckets: Float[Tensor, "n"]) -> Int[Tensor, "n 2"]:
    """Return the keys of buckets: the bits of their numbers."""
    bits = buckets.view(torch.int64)
    return torch.stack([bits, torch.zeros_like(bits)], dim=1)


def _distinct(old: Patterns | Buckets, keys: Tensor) -> DistinctState:
    members, _, _ = as_members(keys[:, None], hashed=True)
    unknown = torch.full((len(keys),), UNKNOWN, device=keys.device)
    seen = KindSet.empty(1, keys.device).add(KindSet.of(members, counts=unknown))
    return DistinctState(old.counts, old.widths, seen, 1)
