"""States of different layers put side by side, as one process would hold that observed all of these layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from neuralcov.core.layout import group_by_width
from neuralcov.core.records import zip_tensors

T = TypeVar("T")


def rows_behind(ours: T, theirs: T) -> T:
    """Return tensors or records whose first axis is that of layers, the second's layers behind the first's."""
    return zip_tensors(lambda a, b: torch.cat([a, b]), ours, theirs)


@dataclass(frozen=True)
class SideBySide:
    """Join what stands by group of layers: ``theirs`` are the widths of the layers behind ``ours``.

    Layers of one width are one group, so that groups which both have are joined and the others stand as they are.
    """

    ours: tuple[int, ...]
    theirs: tuple[int, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of all layers."""
        return self.ours + self.theirs

    def groups(self, a: Sequence[T], b: Sequence[T], join: Callable[[T, T], T] = rows_behind) -> tuple[T, ...]:
        """Return the parts of both by group of all layers; ``join`` puts two of one width together."""
        mine, others = dict(zip(_widths(self.ours), a, strict=True)), dict(zip(_widths(self.theirs), b, strict=True))
        both = {width: join(mine[width], others[width]) for width in mine if width in others}
        return tuple({**mine, **others, **both}.values())


def _widths(widths: tuple[int, ...]) -> list[int]:
    return [group.width for group in group_by_width({str(place): width for place, width in enumerate(widths)})]
