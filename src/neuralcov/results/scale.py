"""Are inputs scaled as training data were, and are their colours in the same order?

Networks hardly tell: pixels that were not normalised, or whose colours are swapped, stay among what training data make
a network do. The numbers of the inputs themselves tell both.

*Scale.* Mean and deviation of all numbers are set beside those of training data. A single class of images shifts the
mean by up to 0.6 deviations and changes the deviation by a fifth (CIFAR-10, MNIST); what is not normalised, centred or
brought to [0, 1] changes them twofold and more.

*Colours.* Take the mean colour of an image for a draw from the normal distribution that those of training images have.
If the images fit it better with their channels in another order, by several standard errors of that gain and by half
of what training images would lose so, somebody swapped them. Of 1,800 random suites of CIFAR-10's test
images, of 50 to 2,000 each, none in the right order was called swapped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

# By what factor the deviation must differ, or by how many deviations of training data the mean.
_FACTOR, _SHIFT = 1.6, 1.5
# In standard errors: by how much the mean square must differ, and by how much another order must fit better.
_ERRORS, _BETTER = 4.0, 3.0
_OF_LOSS = 0.5
# Mean colours that hardly vary but together tell no order.
_LEAST_SPREAD = 1e-9


@dataclass(frozen=True)
class ChannelFacts:
    """Hold what was counted of the numbers in a suite's inputs, channel by channel.

    Args:
        inputs: how many inputs were counted.
        means: the mean of each channel over all inputs.
        covariance: the covariance of the inputs' own means, channel by channel.
        squares: the mean of the squares of each channel.
        squares_error: the standard error of the mean of all squares.
    """

    inputs: int
    means: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    squares: tuple[float, ...]
    squares_error: float

    @property
    def mean(self) -> float:
        """The mean of all numbers."""
        return sum(self.means) / len(self.means)

    @property
    def deviation(self) -> float:
        """The standard deviation of all numbers about the mean of their channel."""
        return math.sqrt(max(0.0, self._variance))

    @property
    def _variance(self) -> float:
        return sum(square - mean**2 for square, mean in zip(self.squares, self.means, strict=True)) / len(self.means)

    def shift(self, training: ChannelFacts) -> float:
        """Return by how many deviations of training data the mean of a channel differs, of the one farthest off."""
        both = zip(self.means, training.means, strict=True)
        return max(abs(ours - theirs) for ours, theirs in both) / training.deviation


def comparable(suite: ChannelFacts | None, training: ChannelFacts | None) -> bool:
    """Return whether inputs of a suite and of training data have as many channels, and vary at all."""
    if suite is None or training is None or not suite.inputs or not training.inputs:
        return False
    return len(suite.means) == len(training.means) and training.deviation > 0


def other_scale(suite: ChannelFacts, training: ChannelFacts) -> bool:
    """Return whether a suite's numbers are scaled otherwise than those of training data.

    >>> train = ChannelFacts(900, (0.5,), ((0.01,),), (0.33,), 0.001)
    >>> other_scale(train, train), other_scale(ChannelFacts(99, (127.0,), ((650.0,),), (21000.0,), 70.0), train)
    (False, True)
    """
    factor = suite.deviation / training.deviation
    apart = abs(sum(suite.squares) - sum(training.squares)) / len(suite.squares)
    sure = apart > _ERRORS * math.hypot(suite.squares_error, training.squares_error)
    return (sure and not 1 / _FACTOR < factor < _FACTOR) or suite.shift(training) > _SHIFT


def better_order(suite: ChannelFacts, training: ChannelFacts) -> tuple[int, ...] | None:
    """Return the order of a suite's channels that fits training data better, from 0; ``None`` if none surely does.

    With ℓ the log-density of a normal distribution of training's mean and covariance, m an input's channel means and P
    an order, ℓ(Pm) − ℓ(m) is quadratic in m: its mean follows from the suite's mean and covariance alone, and so does
    its variance as far as m is normal.
    """
    width = len(suite.means)
    if width < 2:
        return None
    means, covariance = np.asarray(suite.means), np.asarray(suite.covariance)
    usual, spread = np.asarray(training.means), np.asarray(training.covariance)
    values = np.linalg.eigvalsh(spread)
    if not values[0] > _LEAST_SPREAD * values[-1]:
        return None
    precision = np.linalg.inv(spread)
    found: tuple[float, tuple[int, ...] | None] = (_BETTER, None)
    for order in permutations(range(width)):
        moved = np.eye(width)[list(order)]
        square = (precision - moved.T @ precision @ moved) / 2
        linear = (moved.T @ precision - precision) @ usual

        loss = -_mean(square, linear, usual, spread)
        gain = _mean(square, linear, means, covariance)
        slope = linear + 2 * square @ means
        variance = float(2 * np.trace(square @ covariance @ square @ covariance) + slope @ covariance @ slope)
        if variance > 0 and gain > _OF_LOSS * loss > 0:
            found = max(found, (gain / math.sqrt(variance / suite.inputs), order), key=lambda one: one[0])
    return found[1]


def _mean(square: np.ndarray, linear: np.ndarray, centre: np.ndarray, covariance: np.ndarray) -> float:
    """Return the mean of mᵀ·square·m + linear·m for draws m of this centre and covariance."""
    return float(np.trace(square @ covariance) + centre @ square @ centre + linear @ centre)


def show_scale(mean: float | None, deviation: float | None) -> str:
    """Format mean ± deviation, with two or three figures of the deviation; an empty text where they are not known.

    >>> show_scale(0.004, 1.0021), show_scale(-0.47337, 0.2511), show_scale(120.7, 64.1), show_scale(3.0, 0.0)
    ('0.00 ± 1.00', '−0.47 ± 0.25', '120.7 ± 64.1', '3 ± 0')
    """
    if mean is None or deviation is None:
        return ""
    if not deviation:
        return f"{mean:.4g} ± 0"
    power = math.floor(math.log10(deviation))
    decimals = min(12, max(0, 2 - power if power >= 0 else 1 - power))
    # Added, 0 makes -0.0 into +0.0.
    return f"{round(mean, decimals) + 0.0:.{decimals}f} ± {deviation:.{decimals}f}".replace("-", "−")


def in_words(order: Sequence[int]) -> str:
    """Say in which order channels are: by number, and for three of them by what people call it.

    >>> in_words((2, 1, 0)), in_words((1, 0))
    ('3, 2, 1 (BGR for RGB)', '2, 1')
    """
    told = ", ".join(str(channel + 1) for channel in order)
    return f"{told} (BGR for RGB)" if tuple(order) == (2, 1, 0) else told
