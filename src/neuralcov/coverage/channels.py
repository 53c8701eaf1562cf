"""Count the numbers in inputs, channel by channel: suites that are prepared otherwise are known by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from neuralcov.results.scale import ChannelFacts

_MOST_CHANNELS = 16
# Inputs are counted so many at a time: each takes the products of its channels.
_ROWS = 1 << 12


@dataclass(frozen=True, eq=False)
class ChannelCounts:
    """Hold sums over inputs; counts of two suites add up.

    Args:
        inputs: how many inputs have finite numbers only.
        means: the sum of their channel means, ``(channels,)``.
        products: the sum of the products of these, ``(channels, channels)``.
        squares: the sum of their mean squares, ``(channels,)``.
        fourth: the sum of the square of each input's mean square over all channels.
    """

    inputs: int
    means: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    fourth: float

    @classmethod
    def of_none(cls, channels: int) -> Self:
        """Count no inputs."""
        return cls(0, np.zeros(channels), np.zeros((channels, channels)), np.zeros(channels), 0.0)

    def with_inputs(self, moments: np.ndarray) -> ChannelCounts:
        """Count inputs, given ``(inputs, channels, 2)`` means and mean squares, one after the other.

        So the sums are the same to the bit however inputs come in batches, and whenever these are counted.
        """
        counts = self
        for begin in range(0, len(moments), _ROWS):
            counts = counts._with_block(moments[begin : begin + _ROWS])
        return counts

    def _with_block(self, moments: np.ndarray) -> ChannelCounts:
        rows = moments[np.isfinite(moments).all(axis=(1, 2))].astype(np.float64)
        means, squares = rows[:, :, 0], rows[:, :, 1]
        return ChannelCounts(
            self.inputs + len(rows),
            _one_by_one(self.means, means),
            _one_by_one(self.products, means[:, :, None] * means[:, None, :]),
            _one_by_one(self.squares, squares),
            float(_one_by_one(np.float64(self.fourth), squares.mean(axis=1) ** 2)),
        )

    def __add__(self, other: ChannelCounts) -> ChannelCounts:
        return ChannelCounts(
            self.inputs + other.inputs,
            self.means + other.means,
            self.products + other.products,
            self.squares + other.squares,
            self.fourth + other.fourth,
        )

    def facts(self) -> ChannelFacts | None:
        """Return means and deviations as plain data; ``None`` if no input has finite numbers."""
        if not self.inputs:
            return None
        means, squares = self.means / self.inputs, self.squares / self.inputs
        covariance = self.products / self.inputs - np.outer(means, means)
        scatter = max(0.0, self.fourth / self.inputs - squares.mean() ** 2)
        return ChannelFacts(
            self.inputs,
            tuple(means.tolist()),
            tuple(tuple(row) for row in covariance.tolist()),
            tuple(squares.tolist()),
            math.sqrt(scatter / self.inputs),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as files keep it."""
        sums = {name: getattr(self, name).tolist() for name in ("means", "products", "squares")}
        return {"inputs": self.inputs, **sums, "fourth": self.fourth}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what a file holds; refuse numbers that do not belong together."""
        means, products, squares = (np.asarray(content[n], np.float64) for n in ("means", "products", "squares"))
        width = len(means)
        inputs, fourth = int(content["inputs"]), float(content["fourth"])
        if not 0 < width <= _MOST_CHANNELS or products.shape != (width, width) or squares.shape != means.shape:
            raise ValueError(f"channels of shapes {means.shape}, {products.shape} and {squares.shape}")
        if inputs < 0 or not all(np.isfinite(part).all() for part in (means, products, squares, fourth)):
            raise ValueError(f"channels of {inputs} inputs, or with numbers that are none")
        return cls(inputs, means, products, squares, fourth)


def _one_by_one(total: np.ndarray | np.floating[Any], rows: np.ndarray) -> np.ndarray:
    """Add rows to a sum in their order; ``sum`` adds them in an order that depends on how many there are."""
    sums: np.ndarray = np.concatenate([np.asarray(total)[None], rows]).cumsum(axis=0)
    return np.asarray(sums[-1])
