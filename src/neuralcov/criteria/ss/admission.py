"""Decide which inputs of a batch SS admits, in order.

An input's gain depends on which earlier inputs were admitted. Start by assuming none, compute every input's gain at
once, admit those that gain, and repeat with that answer until it stops changing. A verdict depends on earlier inputs
only, so each round settles at least one more, and in practice nearly all; an answer that does not change is the one
that judging the inputs one by one would give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Int
from neuralcov.criteria.ss.signs import NOWHERE, SignBatch, SignPairs, neighbours, positions
from neuralcov.kernels.hashing import count_bits, lexical_orders

_ALL_BITS = -1
# Tensors of one row per match that are alive together.
_TEMPORARIES = 8


class OrderedAdmission:
    """One offer queueing up for one pair of layers.

    Args:
        pairs: the layers.
        offer: single inputs, in order.
        keys: theirs; inputs that do not count have one that nothing else has.
        order: of the keys, equal ones as they queue up.
    """

    def __init__(self, pairs: SignPairs, offer: SignBatch, keys: Int[Tensor, "batch 2"], order: Tensor) -> None:
        self._pairs, self._offer, self._order = pairs, offer, order
        self._table = keys[order]
        first = torch.ones_like(offer.valid)
        first[1:] = (self._table[1:] != self._table[:-1]).any(1)
        self._group = first.cumsum(0) - 1
        self._near = neighbours(pairs.keys, offer), neighbours(self._table, offer)
        self._matches = (self._near[0][1] | self._near[1][1]).t().contiguous()
        # Places in line within the largest group, and the most matches of one neuron: how far scans must reach.
        within = torch.arange(len(order), device=order.device)
        within = within - torch.where(first, within, 0).cummax(0).values
        self.sizes = torch.stack([self._matches.sum(), within.max(), self._matches.sum(1).max()])

    @classmethod
    def of_all(cls, pairs: Sequence[SignPairs], offers: Sequence[SignBatch]) -> list[OrderedAdmission]:
        """Prepare one batch for each pair of layers; leave out pairs where nothing can be shown.

        Waits for the device once.
        """
        keys = [offer.keys.masked_fill(~offer.valid[:, None], NOWHERE) for offer in offers]
        queues = [cls(*parts) for parts in zip(pairs, offers, keys, lexical_orders(keys), strict=True)]
        sizes = torch.stack([queue.sizes for queue in queues]).tolist()
        for queue, size in zip(queues, sizes, strict=True):
            queue._prepare(*size)
        return [queue for queue, (matches, _, _) in zip(queues, sizes, strict=True) if matches]

    def _prepare(self, matches: int, behind: int, most: int) -> None:
        """Compute everything that does not depend on who is admitted."""
        pairs, offer, order = self._pairs, self._offer, self._order
        self._behind, self._most = behind, most
        self._neuron, self._row = positions(self._matches, matches)
        second = offer.wanted(self._row, self._neuron)[:, 1]
        (kept_at, kept), (line_at, in_line) = (
            (at[self._row, self._neuron].long(), found[self._row, self._neuron]) for at, found in self._near
        )
        # Look-ups compare first words only; the second settles it.
        self._kept_at = kept_at
        self._kept = kept & (_rows(pairs.keys, kept_at)[:, 1] == second)
        in_line &= self._table[line_at, 1] == second
        # The last of the neighbouring group that stands before the input.
        count, group = len(order), self._group[line_at]
        before = torch.searchsorted(self._group * count + order, group * count + self._row) - 1
        self._before = before.clamp(min=0)
        self._in_line = in_line & (before >= 0) & (self._group[self._before] == group)
        # The group that each input in line joins, as it was kept before any of them.
        own = torch.searchsorted(pairs.keys[:, 0].contiguous(), self._table[:, 0].contiguous())
        own = own.clamp(max=max(len(pairs.keys) - 1, 0))
        self._known = (_rows(pairs.keys, own) == self._table).all(1) & bool(len(pairs.keys))
        self._every = torch.where(self._known[:, None], _rows(pairs.every, own), _ALL_BITS)
        self._some = torch.where(self._known[:, None], _rows(pairs.some, own), 0)
        # Of inputs × neurons, and no longer needed.
        del self._near, self._matches

    def newly_shown(self, admitted: Bool[Tensor, "batch"]) -> Int[Tensor, "batch"]:
        """Return, for each input, how many pairs it would newly show after those before it that are admitted."""
        pairs, offer, order = self._pairs, self._offer, self._order
        here = admitted[order]
        every = torch.where(here[:, None], offer.every[order], _ALL_BITS)
        some = torch.where(here[:, None], offer.some[order], 0)
        every = self._every & _scanned(every, self._group, self._behind, torch.bitwise_and)
        some = self._some | _scanned(some, self._group, self._behind, torch.bitwise_or)
        exists = self._known | _scanned(here, self._group, self._behind, torch.bitwise_or)
        counts = torch.zeros(len(order), dtype=torch.int64, device=order.device)
        shown = pairs.shown
        for part in blocks(len(self._row), _TEMPORARIES * shown.shape[1], order.device):
            row, neuron, before = self._row[part], self._neuron[part], self._before[part]
            in_line = self._in_line[part, None]
            kept_at = self._kept_at[part]
            its_every = torch.where(in_line, every[before], _rows(pairs.every, kept_at))
            its_some = torch.where(in_line, some[before], _rows(pairs.some, kept_at))
            there = torch.where(in_line[:, 0], exists[before], self._kept[part])
            # What others of the input's own group show with its neighbours is shown already.
            differs = (offer.some[row] | its_some) & ~(offer.every[row] & its_every) & ~shown[neuron]
            differs &= -there.long()[:, None]
            seen = _scanned(differs & -admitted[row].long()[:, None], neuron, self._most - 1, torch.bitwise_or)
            earlier = torch.zeros_like(seen)
            earlier[1:] = seen[:-1] * (neuron[1:] == neuron[:-1])[:, None]
            counts.index_add_(0, row, count_bits(differs & ~earlier).sum(1))
            if part.stop < len(self._row):
                # A neuron's matches may go on in the next block.
                last = torch.ones_like(neuron, dtype=torch.bool)
                last[:-1] = neuron[1:] != neuron[:-1]
                shown = shown.clone()
                shown[neuron[last]] |= seen[last]
        return counts


def _rows(table: Tensor, at: Int[Tensor, "some"]) -> Tensor:
    """Return some rows, or zeros where the table has none: these are never used."""
    return table[at] if len(table) else table.new_zeros(len(at), *table.shape[1:])


def _scanned(
    values: Tensor, group: Int[Tensor, "rows"], reach: int, join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Join each row with all rows before it of the same group, which are at most ``reach``."""
    step = 1
    while step <= reach:
        same = group[step:] == group[:-step]
        same = same if values.ndim == 1 else same[:, None]
        joined = torch.where(same, join(values[step:], values[:-step]), values[step:])
        values = torch.cat([values[:step], joined])
        step *= 2
    return values
