"""Nearest neighbours by blocked matrix products, with every answer proven or found again exactly.

A fast product gives every distance within a known error, hence a lower and an upper bound. What could be
nearest by its lower bound is measured exactly, in float64; if more candidates than were kept could be, the
query is asked again with products in float64, and if that leaves a doubt too, answered by an exact scan. So the
precision of a product never changes a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int, Shaped
from neuralcov.kernels.operations import ALIGNED, split_rows, triton_available

_KEPT = 4
# Relative error of the fast product of two rows: of the split operands, beyond that of adding up.
PRODUCT_ERROR = 2.0**-16
_BLOCK = {"cpu": 1 << 22}
_BLOCK_ELSEWHERE = 1 << 27
QUERY_ELEMENTS = 1 << 28
# On a GPU a number of a query takes a float32 and three bfloat16, and all queries together this part of the memory.
_QUERY_BYTES, _QUERY_SHARE = 10, 16

Stream = Callable[[], Iterable[tuple[Tensor, Tensor]]]


@dataclass(frozen=True, eq=False)
class NeighbourIndex:
    """What is searched.

    Args:
        stream: gives ``(numbers, rows)`` block by block: the rows' numbers on the CPU, rising, and the rows.
        fetch: rows by rising numbers.
        centre: any point amid the rows; distances do not depend on it, the tightness of bounds does.
        classes: of all rows, by number, where searches are to leave a class out.
    """

    stream: Stream
    fetch: Callable[[Tensor], Tensor]
    centre: Float[Tensor, "width"]
    classes: Int[Tensor, "rows"] | None = None

    def forbidden(self, numbers: Tensor, apart_from: Tensor | None) -> Bool[Tensor, "queries rows"] | None:
        """Return which rows each query must not be matched with."""
        if apart_from is None:
            return None
        assert self.classes is not None
        return apart_from[:, None] == self.classes[numbers.to(self.classes.device, non_blocking=True)]


def queries_at_once(width: int, device: torch.device) -> int:
    """Return how many queries of a width are searched for together, by the memory their operands take.

    The more at once, the less often all rows are read.
    """
    elements = QUERY_ELEMENTS
    if device.type == "cuda":
        elements = torch.cuda.get_device_properties(device).total_memory // (_QUERY_SHARE * _QUERY_BYTES)
    return max(1, elements // width)


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """Queries that are searched for among some rows of an index only: their positions, on the CPU, and the rows."""

    queries: Int[Tensor, "some"]
    stream: Stream


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest row of each query, the lowest number among equals.

    Args:
        numbers: of the nearest rows, -1 where no row counts; where the queries are.
        distances: exact, infinite where no row counts; where the queries are.
        possible: all numbers that may occur among ``numbers``, rising, on the CPU: known without waiting for the
            device to measure.
    """

    numbers: Int[Tensor, "queries"]
    distances: Float[Tensor, "queries"]
    possible: Int[Tensor, "rows"]


def nearest(
    queries: Float[Tensor, "queries width"], index: NeighbourIndex, apart_from: Int[Tensor, "queries"] | None = None
) -> Neighbours:
    """Return the nearest row of each query.

    Args:
        queries: the points to find neighbours of, float64 where rows are.
        index: the rows to search.
        apart_from: if given, rows of this class do not count; the index must know its rows' classes.
    """
    step = queries_at_once(queries.shape[1], queries.device)
    parts = []
    for start in range(0, len(queries), step):
        some = queries[start : start + step]
        everyone = QueryGroup(torch.arange(len(some)), index.stream)
        parts.append(_found(some, index, [everyone], None if apart_from is None else apart_from[start : start + step]))
    if not parts:
        return _found(queries, index, [], None)
    return Neighbours(
        torch.cat([part.numbers for part in parts]),
        torch.cat([part.distances for part in parts]),
        torch.unique(torch.cat([part.possible for part in parts])),
    )


def nearest_in_groups(
    queries: Float[Tensor, "queries width"], index: NeighbourIndex, groups: Sequence[QueryGroup]
) -> Neighbours:
    """Search as ``nearest``, each query among the rows of its group; -1 and infinity for queries in none.

    What could be nearest is measured for all groups together, so that the device is waited for once, not per group.
    """
    return _found(queries, index, groups, None)


def _found(
    queries: Tensor, index: NeighbourIndex, groups: Sequence[QueryGroup], apart_from: Tensor | None
) -> Neighbours:
    """Search by fast products; what these leave in doubt by products in float64; the rest by direct subtraction."""
    bounds = _Bounds(queries, index.centre)
    for group, positions in zip(groups, _on_device(groups, queries.device), strict=True):
        among = slice(None) if len(group.queries) == len(queries) else positions
        for numbers, rows in group.stream():
            for some in _parts(len(numbers), len(group.queries), queries.device):
                forbidden = index.forbidden(numbers[some], apart_from)
                bounds.narrow(numbers[some], rows[some], forbidden, among)
    candidates, could_be, doubtful = bounds.result()
    found = _measured(queries, candidates, could_be, index)
    if not bool(doubtful.any()):
        return found
    again = doubtful.nonzero()[:, 0]
    here = again.to(queries.device, non_blocking=True)
    among_classes = None if apart_from is None else apart_from[here]
    position = torch.full((len(queries),), -1)
    position[again] = torch.arange(len(again))
    left = [QueryGroup(position[g.queries][position[g.queries] >= 0], g.stream) for g in groups]
    left = [group for group in left if len(group.queries)]
    ask = _scanned if queries.dtype == torch.float64 else _found
    answers = ask(queries[here].double(), index, left, among_classes)
    found.numbers[here], found.distances[here] = answers.numbers, answers.distances
    return Neighbours(found.numbers, found.distances, torch.unique(torch.cat([found.possible, answers.possible])))


def _on_device(groups: Sequence[QueryGroup], device: torch.device) -> Sequence[Tensor]:
    """Return the positions of each group's queries, copied at once for all groups, of which there may be a thousand."""
    if not groups:
        return ()
    together = torch.cat([group.queries for group in groups]).to(device, non_blocking=True)
    return torch.split(together, [len(group.queries) for group in groups])


class _Bounds:
    """The rows with the smallest lower bounds so far, and the smallest upper bound, of each query.

    Queries in float64 are compared in float64, otherwise in the fastest way there is.
    """

    def __init__(self, queries: Tensor, centre: Tensor) -> None:
        self._dtype = queries.dtype
        self._centre = centre.to(queries.dtype)
        self._wide, self._squares = prepared(queries, self._centre, left=True)
        split = 0.0 if queries.dtype == torch.float64 else PRODUCT_ERROR
        self._error = split + rounding(queries.shape[1], queries.dtype)
        shape = (len(queries), _KEPT + 1)
        self._lower = torch.full(shape, math.inf, dtype=queries.dtype, device=queries.device)
        self._number = torch.full(shape, -1, device=queries.device)
        self._upper = torch.full((len(queries),), math.inf, dtype=queries.dtype, device=queries.device)
        # Squares beyond this are near overflow: nothing is concluded from them.
        self._large = 1e36 if queries.dtype == torch.float32 else 1e300
        self._overflown = torch.zeros((), dtype=torch.bool, device=queries.device)

    def narrow(
        self, numbers: Tensor, rows: Tensor, forbidden: Tensor | None, among: Tensor | slice = slice(None)
    ) -> None:
        """Take in some rows, for the queries ``among`` all."""
        others, squares = prepared(rows.to(self._dtype), self._centre, left=False)
        asked = self._squares[among]
        apart = product(self._wide[among], others)[:, : len(numbers)].mul_(-2)
        apart += asked[:, None]
        apart += squares
        self._overflown |= ~squares.isfinite().all()
        # Rows too long to be squared count as infinitely far, which result() doubts where it would matter.
        apart.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf)
        error = (_roots(asked)[:, None] + _roots(squares)).square_().mul_(self._error)
        if forbidden is not None:
            apart.masked_fill_(forbidden, math.inf)
        self._upper[among] = torch.minimum(self._upper[among], (apart + error).amin(1))
        lower = apart.sub_(error)
        best = lower.topk(min(_KEPT + 1, len(numbers)), dim=1, largest=False)
        here = numbers.to(rows.device, non_blocking=True)[best.indices]
        lower, number = torch.cat([self._lower[among], best.values], 1), torch.cat([self._number[among], here], 1)
        self._lower[among], kept = lower.topk(_KEPT + 1, dim=1, largest=False)
        self._number[among] = number.gather(1, kept)

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates, which of them could be nearest, and which queries may have more; all on the CPU."""
        could_be = (self._lower <= self._upper[:, None]) & (self._lower < math.inf)
        doubtful = could_be[:, _KEPT] | (self._squares > self._large) | (self._overflown & (self._upper > self._large))
        packed = torch.cat([self._number, could_be.long(), doubtful[:, None].long()], dim=1).cpu()
        candidates, could_be = packed[:, :_KEPT], packed[:, _KEPT + 1 : 2 * _KEPT + 1].bool()
        return candidates, could_be, packed[:, -1].bool()


def rounding(width: int, dtype: torch.dtype) -> float:
    """Bound the error of a squared distance by products, as a share of the square of both lengths' sum.

    Rounding of the operands and of sums of that length, with room to spare (Higham and Mary, 2019).
    """
    return (32 + 8 * math.sqrt(width)) * (2.0**-53 if dtype == torch.float64 else 2.0**-24)


def _roots(squares: Tensor) -> Tensor:
    """Return lengths of rows; 0 for those too long to be squared, whose bounds say nothing anyway."""
    return squares.sqrt().masked_fill(squares.isinf(), 0)


def _rounded_roots(squares: Tensor) -> Tensor:
    """Return square roots to the last digit, in which PyTorch's own may be off on a CPU."""
    return torch.from_numpy(np.sqrt(squares.numpy())) if squares.device.type == "cpu" else squares.sqrt()


def product(left: Shaped[Tensor, "a wide"], right: Shaped[Tensor, "b wide"]) -> Float[Tensor, "a b"]:
    """Return scalar products of rows that ``prepared`` made ready; columns beyond the right rows are of padding."""
    if left.dtype != torch.bfloat16:
        return left @ right.T
    return torch.mm(left, right.T, out_dtype=torch.float32)


def prepared(
    rows: Float[Tensor, "rows width"], centre: Float[Tensor, "width"], *, left: bool
) -> tuple[Shaped[Tensor, "rows wide"], Float[Tensor, "rows"]]:
    """Return rows less the centre, ready for ``product``, and their squared lengths.

    On a CUDA device float32 is split into bfloat16 parts, laid side by side. With h + l the parts of each number,
    h·h' + h·l' + l·h' are the three largest of the four products of two numbers. On the tensor cores, added up in
    float32, they give a relative error below 2⁻¹⁶ at a multiple of the speed of float32. Zeros fill the width, and for
    a right operand the number of rows, up to a multiple of ``ALIGNED``: other shapes come at a fraction of the speed.
    """
    if rows.dtype == torch.float32 and triton_available(rows.device):
        return split_rows(rows, centre, left=left)
    others = rows - centre
    squares = others.square().sum(1)
    if others.device.type != "cuda" or others.dtype != torch.float32:
        return others, squares
    others = torch.nn.functional.pad(others, (0, -rows.shape[1] % ALIGNED, 0, 0 if left else -len(rows) % ALIGNED))
    high = others.bfloat16()
    low = (others - high.float()).bfloat16()
    return torch.cat([high, high, low] if left else [high, low, high], 1), squares


def _measured(queries: Tensor, candidates: Tensor, could_be: Tensor, index: NeighbourIndex) -> Neighbours:
    """Return the nearest candidate of each query, measured exactly, without waiting for the device."""
    query, column = could_be.nonzero(as_tuple=True)
    possible, position = torch.unique(candidates[query, column], return_inverse=True)
    device, shape = queries.device, candidates.shape
    candidates, could_be = (part.to(device, non_blocking=True) for part in (candidates, could_be))
    distances = torch.full(shape, math.inf, dtype=torch.float64, device=device)
    for some in blocks(len(possible), queries.shape[1], device):
        rows = index.fetch(possible[some])
        chosen = ((position >= some.start) & (position < some.stop)).nonzero()[:, 0]
        for part in blocks(len(chosen), queries.shape[1], device):
            pairs = chosen[part]
            places = torch.stack([query[pairs], column[pairs], position[pairs] - some.start])
            asked, kept, at = places.to(device, non_blocking=True)
            distances[asked, kept] = _rounded_roots((queries[asked].double() - rows[at].double()).square().sum(1))
    least = distances.amin(1)
    tied = (distances == least[:, None]) & could_be
    found = candidates.masked_fill(~tied, torch.iinfo(torch.int64).max).amin(1)
    return Neighbours(found.masked_fill(~could_be.any(1), -1), least, possible)


def _scanned(
    queries: Tensor, index: NeighbourIndex, groups: Sequence[QueryGroup], apart_from: Tensor | None
) -> Neighbours:
    """Return the nearest row of each query by direct subtraction."""
    least = torch.full((len(queries),), math.inf, dtype=torch.float64, device=queries.device)
    found = torch.full((len(queries),), -1, device=queries.device)
    for group, among in zip(groups, _on_device(groups, queries.device), strict=True):
        asked, classes = queries[among].double(), None if apart_from is None else apart_from[among]
        for numbers, rows in group.stream():
            for some in blocks(len(numbers), len(asked) * queries.shape[1], queries.device):
                apart = _rounded_roots((asked[:, None] - rows[None, some].double()).square().sum(2))
                forbidden = index.forbidden(numbers[some], classes)
                if forbidden is not None:
                    apart.masked_fill_(forbidden, math.inf)
                here, at = apart.min(1)
                # Blocks come by rising number: an equal distance found later is not taken.
                closer = here < least[among]
                found[among] = torch.where(closer, numbers[some].to(queries.device)[at], found[among])
                least[among] = torch.minimum(least[among], here)
    possible = torch.unique(found.cpu())
    return Neighbours(found, least, possible[possible >= 0])


def _parts(rows: int, queries: int, device: torch.device) -> list[slice]:
    limit = _BLOCK.get(device.type, _BLOCK_ELSEWHERE)
    step = max(1, limit // max(1, queries))
    step = max(step - step % ALIGNED, 1)
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
