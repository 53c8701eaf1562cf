"""Rooms: rows of outputs that are too long to be added to a covariance, kept apart as they are.

Lengths are whitened ones divided by √m, so that training inputs have lengths of about 1. In a float64 covariance an
input of length 10⁵ leaves what the others span with an error of some 10⁻⁷ bits, one of length 10⁸ wipes it out. So
every layer has 64 slots for far inputs (longer than 10⁵) and 64 for stretched ones (longer than 10⁴), each for a whole
row.

- Far inputs: the 65th in a layer, counted over everything observed and merged, makes all of them drop out there, so
  that which ones came first does not matter.
- Stretched inputs beyond the 64th go into the covariance like any other; they always count.

``met`` counts both kinds for ever. Slots are filled in the order of arrival, and a row's place has no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float, Int

SLOTS = 64
STRETCHED, FAR, TOO_FAR = 1e4, 1e5, 1e8


@dataclass(frozen=True, eq=False)
class Room(Record, name="lvc-room"):
    """The long rows of the layers of one width: slots of far inputs, then as many of stretched ones."""

    rows: Float[Tensor, "layers slots width"]
    folds: Int[Tensor, "layers slots"]
    met: Int[Tensor, "2 layers"]

    @classmethod
    def empty(cls, layers: int, width: int, device: torch.device) -> Room:
        """Return a room in which no row is kept."""
        return cls(
            torch.zeros(layers, 2 * SLOTS, width, dtype=torch.float64, device=device),
            torch.zeros(layers, 2 * SLOTS, dtype=torch.int64, device=device),
            torch.zeros(2, layers, dtype=torch.int64, device=device),
        )

    def joined(self, other: Room) -> Room:
        """Return the rooms of the layers of both."""
        rows, folds = torch.cat([self.rows, other.rows]), torch.cat([self.folds, other.folds])
        return Room(rows, folds, torch.cat([self.met, other.met], dim=1))

    def here(self, *, far: bool = True) -> Bool[Tensor, "layers slots"]:
        """Return which slots hold a row that counts, without the far ones if not ``far``."""
        used = torch.arange(SLOTS, device=self.met.device) < self.met[:, :, None]
        counts = used[0] & (self.met[0] <= SLOTS)[:, None] & far
        return torch.cat([counts, used[1]], dim=1)

    def offered(self) -> tuple[Bool[Tensor, "2 slots layers"], Bool[Tensor, "slots layers"]]:
        """Return which of its rows another room is offered as far or as stretched ones, and which as either."""
        used = (torch.arange(SLOTS, device=self.met.device) < self.met[:, :, None]).mT
        nothing = torch.zeros_like(used[0])
        kinds = torch.stack([torch.cat([used[0], nothing]), torch.cat([nothing, used[1]])])
        return kinds, kinds.any(0)


@dataclass(frozen=True, eq=False)
class Places:
    """Where the rows of a batch go: into which slot of a room from which row (−1: none), or into the covariance."""

    source: Int[Tensor, "slots layers"]
    ordinary: Bool[Tensor, "batch layers"]
    met: Int[Tensor, "2 layers"]

    def columns(self, layers: slice) -> Places:
        """Return the same for some of the layers."""
        return Places(self.source[:, layers], self.ordinary[:, layers], self.met[:, layers])

    def filled(
        self, room: Room, rows: Float[Tensor, "layers batch width"], folds: Int[Tensor, "#layers batch"] | None
    ) -> Room:
        """Return a room with its new rows in their slots; rows of no known fold are of fold 0."""
        source = self.source.T
        new, index = source >= 0, source.clamp(min=0)
        drawn = rows.gather(1, index[:, :, None].expand(-1, -1, rows.shape[2]))
        kept = torch.where(new[:, :, None], drawn, room.rows)
        tags = room.folds
        if folds is not None:
            tags = torch.where(new, folds.expand(len(source), -1).gather(1, index), tags)
        return Room(kept, tags, self.met)


def kinds_of(
    squares: Float[Tensor, "batch layers"], valid: Bool[Tensor, "batch layers"]
) -> Bool[Tensor, "2 batch layers"]:
    """Return which rows are far and which are stretched, by their squared lengths."""
    far = squares > FAR**2
    return torch.stack([far & valid, (squares > STRETCHED**2) & ~far & valid])


def places(
    kinds: Bool[Tensor, "2 batch layers"], valid: Bool[Tensor, "batch layers"], met: Int[Tensor, "2 layers"]
) -> Places:
    """Give every long row the next free slot of its kind; nothing waits for the device."""
    batch, layers = valid.shape
    rank = met[:, None] + kinds.cumsum(1) - 1
    fits = kinds & (rank < SLOTS)
    start = (torch.arange(2, device=met.device) * SLOTS)[:, None, None]
    # One more slot takes the rows that go nowhere, and is cut off again.
    slot = torch.where(fits, rank + start, 2 * SLOTS).reshape(2 * batch, layers)
    source = torch.full((2 * SLOTS + 1, layers), -1, dtype=torch.int64, device=met.device)
    index = torch.arange(batch, device=met.device).repeat(2)[:, None].expand(-1, layers)
    source = source.scatter(0, slot, index)[:-1]
    return Places(source, valid & ~kinds[0] & ~fits[1], met + kinds.sum(1))
