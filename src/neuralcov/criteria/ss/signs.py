"""Which sign changes of a layer's single neurons were seen to change signs in the next layer.

Inputs are grouped by the sign vector of the first layer, known by a 128-bit key: the sum of one random word
pair per positive neuron. Flipping neuron i adds or subtracts its words, so the group that differs in i alone
is found by looking up one sum. Per group the AND and the OR of the next layer's signs are kept, as bits: the
pair (i, j) is shown iff groups G and G⊕i exist and bit j is in the OR but not the AND of both together. This is
exact, linear in inputs × neurons, and two suites merge by AND and OR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Int
from neuralcov.kernels.hashing import count_bits, lexical_orders, neuron_words, pack, unpack, words_for
from neuralcov.kernels.operations import absorb_rows, find_flipped, mark_shown, triton_available

NOWHERE = (1 << 63) - 1


@dataclass(frozen=True, eq=False)
class SignPairs(Record, name="sign-pairs"):
    """Two consecutive layers: groups of inputs, and the pairs of neurons shown so far.

    Args:
        keys: of the sign vectors of the first layer, in lexical order.
        every: per group, bits of next-layer neurons positive for all its inputs.
        some: per group, bits of next-layer neurons positive for at least one.
        shown: per neuron of the first layer, bits of next-layer neurons shown to follow it.
    """

    keys: Int[Tensor, "groups 2"]
    every: Int[Tensor, "groups words"]
    some: Int[Tensor, "groups words"]
    shown: Int[Tensor, "width words"]
    next_width: int

    @classmethod
    def empty(cls, width: int, next_width: int, device: torch.device) -> SignPairs:
        """Return two layers without a group of inputs and with nothing shown."""

        def zeros(rows: int, columns: int) -> Tensor:
            return torch.zeros(rows, columns, dtype=torch.int64, device=device)

        words = words_for(next_width)
        return cls(zeros(0, 2), zeros(0, words), zeros(0, words), zeros(width, words), next_width)

    @property
    def width(self) -> int:
        """Return the neurons of the first layer."""
        return self.shown.shape[0]

    def count_shown(self) -> Int[Tensor, ""]:
        """Return how many pairs are shown."""
        return count_bits(self.shown).sum()


@dataclass(frozen=True, eq=False)
class SignBatch:
    """Groups of inputs offered to a ``SignPairs``.

    Args:
        layer: position of the first layer, whose neurons' words make the keys.
        keys: of their sign vectors.
        every: bits positive for all inputs of each offered group.
        some: bits positive for at least one.
        signs: of the first layer; flipping a positive neuron takes its words away, flipping another adds them.
        valid: which offers count.
    """

    layer: int
    keys: Int[Tensor, "batch 2"]
    every: Int[Tensor, "batch words"]
    some: Int[Tensor, "batch words"]
    signs: Bool[Tensor, "batch width"]
    valid: Bool[Tensor, "batch"]

    @property
    def words(self) -> Int[Tensor, "width 2"]:
        """Return the words of the first layer's neurons."""
        return neuron_words(self.layer, self.signs.shape[1], self.signs.device)

    def wanted(self, row: Tensor, neuron: Tensor) -> Int[Tensor, "some 2"]:
        """Return the keys of some inputs' sign vectors with one neuron flipped each."""
        words = self.words[neuron]
        return self.keys[row] + torch.where(self.signs[row, neuron][:, None], -words, words)


class SignInsertion:
    """One offer taken into one pair of layers, in two phases.

    The first finds out, on the device, how many groups and neighbours there are (``sizes``); the second, told
    these numbers, builds the result. Between the two, one wait serves all pairs of layers.

    Args:
        pairs: the layers.
        offer: what is offered.
        keys: of both, one after the other; offers that do not count are last in any order.
        order: of the keys.
    """

    def __init__(self, pairs: SignPairs, offer: SignBatch, keys: Int[Tensor, "entries 2"], order: Tensor) -> None:
        self._pairs, self._offer, self._order = pairs, offer, order
        self._table = keys[order]
        self._real = self._table[:, 0] != NOWHERE
        self._kept = self._real.clone()
        self._kept[1:] &= (self._table[1:] != self._table[:-1]).any(1)
        self._at, self._found = neighbours(self._table, offer)
        self.sizes = torch.stack([self._kept.sum(), self._found.sum()])

    @classmethod
    def of_all(cls, pairs: Sequence[SignPairs], offers: Sequence[SignBatch]) -> list[SignInsertion]:
        """Begin to insert one batch into each pair of layers."""
        keys = [
            torch.cat([pair.keys, offer.keys.masked_fill(~offer.valid[:, None], NOWHERE)])
            for pair, offer in zip(pairs, offers, strict=True)
        ]
        orders = lexical_orders(keys)
        return [cls(*parts) for parts in zip(pairs, offers, keys, orders, strict=True)]

    def finish(self, groups: int, matches: int) -> SignPairs:
        """Return the pair of layers with the batch inserted."""
        if groups == len(self._table):
            # Every input has a group of its own, which is how wide layers are: nothing to bring together.
            place, where = torch.arange(groups, device=self._order.device), torch.empty_like(self._order)
            where[self._order] = place
            keys = self._table
            every, some = (
                torch.cat([old, new])[self._order]
                for old, new in ((self._pairs.every, self._offer.every), (self._pairs.some, self._offer.some))
            )
        else:
            place = torch.where(self._real, self._kept.cumsum(0) - 1, groups)
            where = torch.empty_like(place)
            where[self._order] = place
            keys = self._table.new_empty(groups + 1, 2)
            keys[place] = self._table
            every, some = self._combined(where, groups)
        shown = self._shown(place, where[len(self._pairs.keys) :], every, some, matches)
        return SignPairs(keys[:groups], every[:groups], some[:groups], shown, self._pairs.next_width)

    def _shown(
        self, place: Int[Tensor, "entries"], own: Int[Tensor, "batch"], every: Tensor, some: Tensor, matches: int
    ) -> Int[Tensor, "width words"]:
        """Return the pairs shown now, told the sign groups of table entries and of the batch."""
        before, offer = self._pairs.shown, self._offer
        if not matches:
            return before
        if triton_available(before.device):
            shown = before.clone()
            mark_shown(
                self._found, self._at, self._table, offer.keys, offer.words, offer.signs, own, place, every, some, shown
            )
            return shown
        row, neuron = positions(self._found, matches)
        at = self._at[row, neuron]
        one, other = own[row], place[at]
        differs = (some[one] | some[other]) & ~(every[one] & every[other])
        # Look-ups compare first words only; the second settles it.
        same = (self._table[at, 1] == offer.wanted(row, neuron)[:, 1])[:, None]
        return before | _gathered(differs * same, neuron, self._pairs)

    def _combined(self, where: Tensor, groups: int) -> tuple[Tensor, Tensor]:
        """Return AND and OR per sign group; row ``groups`` takes what is not valid."""
        pairs, offer = self._pairs, self._offer
        old, new = where[: len(pairs.keys)], where[len(pairs.keys) :]
        words = pairs.shown.shape[1]
        every = torch.full((groups + 1, words), -1, dtype=torch.int64, device=where.device)
        some = torch.zeros_like(every)
        every[old], some[old] = pairs.every, pairs.some
        if triton_available(where.device):
            absorb_rows(new, offer.every, offer.some, every, some)
            return every, some
        # Offers of one group are first brought together at the first of them; all then write the same.
        rows = torch.arange(len(new), device=where.device)
        first = torch.full((groups + 1,), len(new), device=where.device).scatter_reduce(0, new, rows, "amin")[new]
        all_of, any_of = _reduced(offer, first, pairs.next_width)
        every[new] = every[new] & all_of[first]
        some[new] = some[new] | any_of[first]
        return every, some


def newly_shown(pairs: SignPairs, offer: SignBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each input alone, where its neighbours are, whether they may exist, and how many may."""
    at, found = neighbours(pairs.keys, offer)
    return at, found, found.sum()


def count_newly_shown(
    pairs: SignPairs, offer: SignBatch, at: Tensor, found: Tensor, matches: int
) -> Int[Tensor, "batch"]:
    """Return, for each input alone, how many pairs it would newly show."""
    counts = torch.zeros(len(offer.keys), dtype=torch.int64, device=offer.keys.device)
    if not matches:
        return counts
    row, neuron = positions(found, matches)
    other = at[row, neuron]
    for part in blocks(matches, pairs.shown.shape[1], offer.keys.device):
        r, i, o = row[part], neuron[part], other[part]
        same = (pairs.keys[o, 1] == offer.wanted(r, i)[:, 1])[:, None]
        # What others of an input's own group show with its neighbours is shown already.
        differs = (offer.some[r] | pairs.some[o]) & ~(offer.every[r] & pairs.every[o]) & ~pairs.shown[i]
        differs &= -same.long()
        counts.index_add_(0, r, count_bits(differs).sum(1))
    return counts


def as_batch(layer: int, pairs: SignPairs, *, flipping: bool) -> SignBatch:
    """Return the groups of another suite. Their signs are not kept, so both ways of flipping a neuron are tried."""
    everyone = torch.ones(len(pairs.keys), dtype=torch.bool, device=pairs.keys.device)
    signs = torch.full((len(pairs.keys), pairs.width), flipping, device=pairs.keys.device)
    return SignBatch(layer, pairs.keys, pairs.every, pairs.some, signs, everyone)


def positions(found: Bool[Tensor, "rows columns"], count: int) -> tuple[Tensor, Tensor]:
    """Return row and column of the ``count`` true entries; nothing waits for the device, since the number is known."""
    listed = torch.nonzero_static(found, size=count)
    return listed[:, 0], listed[:, 1]


def neighbours(table: Tensor, offer: SignBatch) -> tuple[Tensor, Tensor]:
    """Return, per input and neuron, where in the sorted table the group with that neuron flipped is, and if it is.

    First words are compared only: a wrong match, by a collision of 64 bits, is sorted out where matches are used.
    """
    if len(table) and triton_available(table.device):
        return find_flipped(table, offer.keys, offer.words, offer.signs, offer.valid)
    at = torch.zeros(offer.signs.shape, dtype=torch.int64, device=table.device)
    found = torch.zeros_like(offer.signs)
    if not len(table):
        return at, found
    first, words = table[:, 0].contiguous(), offer.words[:, 0]
    for rows in blocks(len(at), 2 * at.shape[1], table.device):
        wanted = offer.keys[rows, :1] + torch.where(offer.signs[rows], -words, words)
        at[rows] = torch.searchsorted(first, wanted).clamp_(max=len(table) - 1)
        found[rows] = (first[at[rows]] == wanted) & offer.valid[rows, None]
    return at, found


def _reduced(offer: SignBatch, first: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return AND and OR over inputs with the same ``first``, standing at that row."""
    rows = len(first)
    members = torch.zeros(rows, dtype=torch.int32, device=first.device)
    members.index_add_(0, first, torch.ones_like(members))
    all_of, any_of = torch.empty_like(offer.every), torch.empty_like(offer.some)
    for columns in blocks(words_for(width), 64 * rows, first.device):
        bits = 64 * (columns.stop - columns.start)

        def positive(packed: Tensor, columns: slice = columns, bits: int = bits) -> Tensor:
            """Return, per bit, how many of the inputs that belong together have it."""
            counts = torch.zeros(rows, bits, dtype=torch.int32, device=first.device)
            return counts.index_add_(0, first, unpack(packed[:, columns], bits).int())

        in_every = positive(offer.every)
        # Inputs are groups of one, whose two sets of bits are one and the same.
        in_some = in_every if offer.some is offer.every else positive(offer.some)
        all_of[:, columns] = pack(in_every == members[:, None])
        any_of[:, columns] = pack(in_some > 0)
    return all_of, any_of


def _gathered(differs: Tensor, neuron: Tensor, pairs: SignPairs) -> Tensor:
    """Return the OR of the rows of ``differs`` that belong to the same neuron."""
    shown = torch.zeros_like(pairs.shown)
    for part in blocks(len(neuron), 4 * pairs.next_width, neuron.device):
        seen = torch.zeros(pairs.width, pairs.next_width, dtype=torch.int32, device=neuron.device)
        seen.index_add_(0, neuron[part], unpack(differs[part], pairs.next_width).int())
        shown |= pack(seen > 0)
    return shown
