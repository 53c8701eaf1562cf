"""Logarithms of sums of Gaussian kernels, right to the last few digits however far apart the points lie.

A matrix product gives the squared distances of all pairs, each within a known bound of the truth. Where the bound shows
that the sum is precise enough, that is the answer. Elsewhere the sum is taken again over the rows that carry it, those
whose kernel is not negligible beside the largest, with distances measured by float64 differences. Their squares are
added in one fixed order by operations that round alike everywhere, so that such a distance has the same bits on every
device and in every batch.

Why a bound per point is enough, though one far row has a large error of its own: let r be the length of a point and R
the reach below, at least 2r and beyond the rows that carry the sum. A row within R of the point is no longer than
r + R, so that its squared distance is off by at most ε(2r + R)². A row beyond R is off by at most 4ε of its squared
distance, which leaves it negligible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralcov.core.memory import blocks
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.surprise.nearest import rounding

ROWS = 4096
# Pairs of points and rows whose exponents are kept until it is known which sums must be taken again.
PAIRS_AT_ONCE = {"cpu": 1 << 25}
_PAIRS_AT_ONCE_ELSEWHERE = 1 << 28
# Of a surprise, and of a bucket.
PRECISION = 1e-9
# Rows whose kernels are together below exp(-45) of the largest change no float64.
_NEGLIGIBLE = 45.0


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of kernels at some points, by products.

    Args:
        logs: of the sums.
        lengths: of the points, from the centre that the products were taken about.
        exponents: logarithms of the kernels, block by block of rows.
    """

    logs: Float[Tensor, "points"]
    lengths: Float[Tensor, "points"]
    exponents: tuple[Float[Tensor, "points _"], ...]


def points_at_once(rows: int, device: torch.device) -> int:
    """Count the points whose sums over so many rows are taken together."""
    return max(1, PAIRS_AT_ONCE.get(device.type, _PAIRS_AT_ONCE_ELSEWHERE) // max(1, rows))


def room_for(rows: int, width: int, device: torch.device) -> Float[Tensor, "_ width"]:
    """Make room for a block of rows in float64.

    Made once for many sums, since a system hands out fresh memory page by page.
    """
    return torch.empty(min(ROWS, rows), width, dtype=torch.float64, device=device)


def sums(
    points: Float[Tensor, "points width"],
    rows: Float[Tensor, "rows width"],
    centre: Float[Tensor, "width"],
    squares: Float[Tensor, "rows"],
    bandwidth: float,
    room: Float[Tensor, "_ width"],
) -> Sums:
    """Sum the kernels of rows at points, by blocked products.

    Args:
        points: where to sum.
        rows: centres of the kernels.
        centre: a point amid the rows, float64: the nearer to them, the tighter the bounds.
        squares: squared lengths of the rows from there, as ``squared_lengths`` gives them.
        bandwidth: standard deviation of the kernels.
        room: what ``room_for`` made for as many rows or more, which is overwritten.
    """
    half = 0.5 / bandwidth**2
    # The centre is float64, and so is what is taken from it.
    here = points - centre
    own = here.square().sum(1)
    exponents, logs = [], []
    for start in range(0, len(rows), ROWS):
        part, theirs = rows[start : start + ROWS], squares[start : start + ROWS]
        apart, others = own[:, None] + theirs, torch.sub(part, centre, out=room[: len(part)])
        exponents.append(apart.addmm_(here, others.T, beta=-half, alpha=2 * half).clamp_(max=0))
        logs.append(apart.logsumexp(1))
    return Sums(torch.stack(logs).logsumexp(0) if len(logs) > 1 else logs[0], own.sqrt(), tuple(exponents))


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is known of sums by products: how far they are off, and below which exponent a row is negligible."""

    errors: Float[Tensor, "points"]
    floors: Float[Tensor, "points"]

    def doubtful(self, surprises: Float[Tensor, "points"], bucket: float) -> Bool[Tensor, "points"]:
        """Tell where a surprise is not proven precise; what overflowed never is."""
        return ~(self.errors <= PRECISION * surprises.abs().clamp(max=bucket))


def bounds(
    logs: Float[Tensor, "points"],
    lengths: Float[Tensor, "points"],
    log_counts: Float[Tensor, "points"],
    width: int,
    bandwidth: float,
) -> Bounds:
    """Bound the errors of sums over as many rows as ``log_counts`` says; see the head of this file."""
    half = 0.5 / bandwidth**2
    # The largest kernel is at least the mean of all.
    floors = logs - (2 * log_counts + _NEGLIGIBLE)
    reach = torch.maximum(2 * lengths, 1.1 * (floors / -half).sqrt())
    errors = (2 * lengths + reach).square_() * (half * rounding(width, torch.float64))
    return Bounds(errors + math.exp(-_NEGLIGIBLE), floors - 2 * errors)


def carriers(exponents: tuple[Tensor, ...], floors: Float[Tensor, "points"]) -> Bool[Tensor, "points rows"]:
    """Tell which rows may carry each sum."""
    # What overflowed compares as neither and is kept.
    return torch.cat([~(part < floors[:, None]) for part in exponents], dim=1)


def squared_lengths(rows: Float[Tensor, "rows width"], centre: Float[Tensor, "width"]) -> Float[Tensor, "rows"]:
    """Return squared distances from a float64 centre, as ``estimate`` takes them."""
    return torch.cat([(part - centre).square_().sum(1) for part in torch.split(rows, ROWS)])


def differences(
    points: Float[Tensor, "points width"],
    fetch: Callable[[Tensor], Tensor],
    point: Int[Tensor, "pairs"],
    row: Int[Tensor, "pairs"],
    square: Callable[[Tensor], Tensor] | None = None,
    elements: int = 1,
) -> Float[Tensor, "pairs"]:
    """Return squared distances of pairs, from float64 differences.

    Args:
        points: one end of each pair.
        fetch: the rows at the other end, by rising number.
        point: which point, on the CPU.
        row: the number of the row, on the CPU.
        square: squared lengths of differences, which it may overwrite; ``squared`` by default.
        elements: how many numbers ``square`` makes of each.
    """
    device, width = points.device, points.shape[1]
    possible, position = torch.unique(row, return_inverse=True)
    found = torch.empty(len(row), dtype=torch.float64, device=device)
    order = position.argsort(stable=True)
    ordered = position[order]
    for some in blocks(len(possible), width, device):
        rows = fetch(possible[some])
        first, last = torch.searchsorted(ordered, torch.tensor([some.start, some.stop])).tolist()
        for part in blocks(last - first, width * elements, device):
            pairs = order[first + part.start : first + part.stop]
            # One copy for all three, which the host does not wait for.
            places = torch.stack([pairs, point[pairs], position[pairs] - some.start]).to(device, non_blocking=True)
            apart = points[places[1]].double() - rows[places[2]]
            found[places[0]] = (square or squared)(apart)
    return found


def squared(apart: Float[Tensor, "pairs width"]) -> Float[Tensor, "pairs"]:
    """Return squared lengths of rows, which are overwritten."""
    return added(apart.square_())


def added(terms: Float[Tensor, "*rows terms"]) -> Float[Tensor, "*rows"]:
    """Return sums along the last axis, which is overwritten.

    Halves are added to each other until one number is left. Sums by PyTorch take another order for another number of
    rows, and on another device.
    """
    count = terms.shape[-1]
    while count > 1:
        half = (count + 1) // 2
        terms[..., : count - half] += terms[..., half:count]
        count = half
    return terms[..., 0]


def log_sums(exponents: Float[Tensor, "terms"], point: Int[Tensor, "terms"], points: int) -> Float[Tensor, "points"]:
    """Return the logarithms of the sums of exponentials that belong to each point; NaN where all vanish."""
    top = torch.full((points,), -math.inf, dtype=torch.float64, device=exponents.device)
    top.scatter_reduce_(0, point, exponents, "amax")
    shares = (exponents - top[point]).exp_()
    return top + torch.zeros_like(top).index_add_(0, point, shares).log()
