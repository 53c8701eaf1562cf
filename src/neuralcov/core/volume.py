"""The volume a suite spans in units of the training distribution: log-determinants and whitened lengths.

float64 throughout: in float32 the small directions, which a log-determinant weighs as much as the large
ones, are lost in rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from neuralcov.core.activations import Stack
from neuralcov.core.moments import Moments
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float

_ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class Yardstick(Record, name="training-covariance"):
    """The training distribution of the layers of one width: mean and ``base`` = Σ_train + λ·I.

    A layer that was constant in training is not ``alive``: it has no unit to measure in.
    """

    mean: Float[Tensor, "layers width"]
    base: Float[Tensor, "layers width width"]
    alive: Bool[Tensor, "layers"]

    @classmethod
    def of(cls, training: Moments, ridge: float) -> Yardstick:
        """The yardstick of training moments, with λ = ridge · tr(Σ)/m."""
        covariance = training.covariance
        share = covariance.diagonal(dim1=1, dim2=2).mean(1)
        # Equal float64 numbers have a mean that is off by rounding, and so a variance of about its square.
        alive = share > (_ROUNDING * training.mean.abs().amax(1)).square()
        # An identity keeps the factorisation of a constant layer sound; its result is never used.
        covariance.diagonal(dim1=1, dim2=2).add_(torch.where(alive, ridge * share, 1.0)[:, None])
        return cls(training.mean, covariance, alive)

    @cached_property
    def factor(self) -> Float[Tensor, "layers width width"]:
        """Lower Cholesky factor of ``base``."""
        return _factorised(self.base)

    @cached_property
    def log_det(self) -> Float[Tensor, "layers"]:
        """The log-determinant of ``base``."""
        return _log_det(self.factor)

    def bits(self, log_ratio: Float[Tensor, "*rows layers"]) -> Float[Tensor, "*rows layers"]:
        """A log-determinant ratio in bits per neuron."""
        return log_ratio / (self.mean.shape[1] * math.log(2))

    @cached_property
    def _whitening(self) -> Float[Tensor, "layers width width"]:
        """Inverse of the factor, transposed: a product with it is several times faster than solving."""
        identity = torch.eye(self.mean.shape[1], dtype=torch.float64, device=self.mean.device)
        inverse: Tensor = torch.linalg.solve_triangular(self.factor, identity.expand_as(self.factor), upper=False)
        return inverse.mT

    def squared_lengths(self, stack: Stack) -> Float[Tensor, "batch layers"]:
        """Squared whitened distance of every input from the training mean, per layer."""
        apart = (stack.values.double() - self.mean).transpose(0, 1)
        return torch.bmm(apart, self._whitening).square().sum(2).T


def volume(yardstick: Yardstick, suite: Moments) -> Float[Tensor, "layers"]:
    """[log det(T + Σ) − log det T] / (m ln 2) of each layer; 0 for at most one input."""
    bits = yardstick.bits(_suite_log_det(yardstick, suite) - yardstick.log_det)
    return torch.where(yardstick.alive & (suite.count > 1), bits, 0.0)


def volume_gain(
    yardstick: Yardstick, suite: Moments, values: Float[Tensor, "batch layers width"]
) -> Float[Tensor, "batch layers"]:
    """Change of :func:`volume` if each input alone were added; 0 where a layer has seen nothing."""
    shrink = suite.count / (suite.count + 1)
    reach = suite.count / (suite.count + 1) ** 2
    factor, log_det = _shrunk_factor(yardstick, suite)
    squares = _whitened_squares(factor, values.double() - suite.mean)
    change = log_det - _suite_log_det(yardstick, suite) + torch.log1p(reach * squares)
    return torch.where(yardstick.alive & (shrink > 0), yardstick.bits(change), 0.0)


# A factor serves one state, and a state is asked many times while a campaign looks for its next input.
_log_dets: WeakKeyDictionary[Moments, tuple[Yardstick, Tensor]] = WeakKeyDictionary()
_shrunk: WeakKeyDictionary[Moments, tuple[Yardstick, Tensor, Tensor]] = WeakKeyDictionary()


def _suite_log_det(yardstick: Yardstick, suite: Moments) -> Tensor:
    kept = _log_dets.get(suite)
    if kept is None or kept[0] is not yardstick:
        factor = _factorised(yardstick.base + suite.covariance)
        kept = (yardstick, _log_det(factor))
        _log_dets[suite] = kept
    return kept[1]


def _shrunk_factor(yardstick: Yardstick, suite: Moments) -> tuple[Tensor, Tensor]:
    kept = _shrunk.get(suite)
    if kept is None or kept[0] is not yardstick:
        scale = 1 / (suite.count + 1)
        factor = _factorised(yardstick.base + suite.scatter * scale[:, None, None])
        kept = (yardstick, factor, _log_det(factor))
        _shrunk[suite] = kept
    return kept[1], kept[2]


def _factorised(matrices: Tensor) -> Tensor:
    """Lower Cholesky factors. The ridge makes every matrix positive definite, so nothing waits for a check."""
    factor: Tensor = torch.linalg.cholesky_ex(matrices).L
    return factor


def _log_det(factor: Tensor) -> Tensor:
    return 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)


def _whitened_squares(factor: Tensor, apart: Tensor) -> Tensor:
    """‖C⁻¹ d‖² for every row and layer of ``apart``, shape (batch, layers, width)."""
    solved: Tensor = torch.linalg.solve_triangular(factor, apart.permute(1, 2, 0), upper=False)
    return solved.square().sum(1).T
