"""Shards of a data set: every n-th batch of a loader, for processes that share the work.

Batch k belongs to shard k mod n, so that a shard's batches are those that one process sees, and the batches of one step
of all processes stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, RandomSampler

from neuralcov.core.errors import InputError
from neuralcov.sources.data import OwnLoader


@dataclass(frozen=True)
class Shard:
    """Tell which of so many shards is meant, the first by 0."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read the form of ``--shard``, where the first of 64 shards is 1/64.

        >>> Shard.parse("3/64")
        Shard(index=2, count=64)
        """
        number, slash, count = text.partition("/")
        if not (slash and number.strip().isdecimal() and count.strip().isdecimal()):
            raise InputError(f"--shard {text!r}: expected a number and how many there are, such as 3/64")
        if not 1 <= int(number) <= int(count):
            raise InputError(f"--shard {text!r}: expected a number from 1 to {int(count)}")
        return cls(int(number) - 1, int(count))

    def of(self, loader: Iterable[Any]) -> ShardLoader:
        """Return a loader of this shard's batches; refuse one that deals anew every time."""
        inner = loader.batches if isinstance(loader, OwnLoader) else loader
        if isinstance(inner, DataLoader) and isinstance(inner.sampler, RandomSampler):
            raise InputError("the data come in another order every time, so that shards would overlap: no shuffle=True")
        return ShardLoader(loader, self)


@dataclass(frozen=True, eq=False)
class ShardLoader:
    """Serve every n-th batch of a loader."""

    whole: Iterable[Any]
    shard: Shard

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.whole), self.shard.index, None, self.shard.count)
