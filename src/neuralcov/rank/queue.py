"""A queue of inputs, the most suspicious first, each with a score and a short reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from typing_extensions import override

from neuralcov.core.files import Place, atomic_write
from neuralcov.core.input_names import Plain
from neuralcov.rank.columns import Names
from neuralcov.rank.showing import SHOWN, page_of, views_of
from neuralcov.results.input_table import InputTable
from neuralcov.tap.inputs import Unpack


class RankedInput(NamedTuple):
    """One input of a queue: its place from 1, its name, where it lies, its score, and why it stands there."""

    rank: int
    id: Plain
    path: str | None
    score: float
    why: str


def _nothing(position: int) -> str:
    """Say nothing of an input."""
    return ""


@dataclass(frozen=True, eq=False)
class Queue(Sequence[RankedInput]):
    """Inputs in the order in which to look at them. Rows are put together when somebody reads them.

    Args:
        order: positions of the inputs in the data, first things first.
        scores: of all inputs, by position; the larger the sooner.
        names: ids and paths of all inputs.
        reason: from a position to a short sentence.
        folder: where ids that are relative paths begin.
        weights: what each score counted, where that was learnt.
        notes: what a person should read beside the queue.
        said: from a position to what the model says of the input, in words.
    """

    order: np.ndarray
    scores: np.ndarray
    names: Names
    reason: Callable[[int], str]
    folder: Path | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    said: Callable[[int], str] = _nothing

    @override
    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> RankedInput: ...
    @overload
    def __getitem__(self, index: slice) -> list[RankedInput]: ...
    @override
    def __getitem__(self, index: int | slice) -> RankedInput | list[RankedInput]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        position = int(self.order[index])
        place = index if index >= 0 else len(self) + index
        name = self.names.id(position)
        return RankedInput(
            place + 1, name, self._path(position, name), float(self.scores[position]), self.reason(position)
        )

    @override
    def __iter__(self) -> Iterator[RankedInput]:
        return (self[place] for place in range(len(self)))

    @property
    def positions(self) -> list[int]:
        """The positions of the inputs in the data, in the queue's order."""
        found: list[int] = self.order.tolist()
        return found

    @property
    def ids(self) -> list[Plain]:
        """The ids of the inputs, in the queue's order."""
        return [self.names.id(position) for position in self.order.tolist()]

    def _path(self, position: int, name: Plain) -> str | None:
        path = self.names.path(position)
        if path is None and self.folder is not None and isinstance(name, str):
            path = (self.folder / name).as_posix()
        return None if path is None else str(path)

    def table(self) -> InputTable:
        """Return the queue as a table with the columns rank, id, path, score and why."""
        columns = {name: _Field(self, place) for place, name in enumerate(RankedInput._fields)}
        return _QueueTable(columns, self)

    def write(self, path: Place) -> None:
        """Write the queue as CSV or as lines of JSON, as the name's ending says."""
        self.table().write(path)

    def page(
        self,
        path: str | os.PathLike[str],
        data: Iterable[Any] = (),
        *,
        first: int = SHOWN,
        title: str = "Inputs to look at first",
        preprocessing: Any = None,
        unpack: Unpack | None = None,
    ) -> None:
        """Write an HTML page of the first inputs, each with what the model says and the reason why it stands there.

        Args:
            path: of the page, which needs nothing else.
            data: the loader that was ranked, for pictures and texts of the inputs; without it their names alone.
            first: how many inputs.
            title: of the page.
            preprocessing: what was done to pixels, undone where it is a mapping with ``mean`` and ``std``.
            unpack: as for ``Coverage``.
        """
        places = self.order[:first].tolist()
        views = views_of(data, places, preprocessing=preprocessing, unpack=unpack)
        rows = [
            (place, row.rank, str(row.id), row.why, row.score) for place, row in zip(places, self[:first], strict=True)
        ]
        text = page_of(title, len(self), rows, views, self.said, self.notes)
        with atomic_write(Path(path)) as file:
            file.write(text.encode())


@dataclass(frozen=True, eq=False)
class _Field(Sequence[Any]):
    """One column of a queue, whose rows are put together when they are read."""

    queue: Queue
    place: int

    @override
    def __len__(self) -> int:
        return len(self.queue)

    @override
    def __getitem__(self, index: Any) -> Any:
        found = self.queue[index]
        return [row[self.place] for row in found] if isinstance(index, slice) else found[self.place]


@dataclass(frozen=True, eq=False)
class _QueueTable(InputTable):
    """A table that puts each row together once."""

    queue: Queue

    @override
    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (row._asdict() for row in self.queue)
