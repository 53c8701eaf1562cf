"""The volume a suite spans in units of the training distribution: whitening, log-determinants and what an input adds.

Everything happens in whitened coordinates y = C⁻¹(x − μ_train), where C Cᵀ = T is the training covariance with its
ridge. There T is the identity, the volume of a layer is log₂ det(I + Σ_y)/m, and every matrix to be factorised has
eigenvalues of at least 1: directions in which training data vary little weigh as much as the others and are not lost in
rounding.

Inputs up to 10⁴ times as long as training ones enter Σ_y, longer ones stand apart as rows. With S the scatter of the n₀
inputs in Σ_y, μ₀ their mean, D the k long rows less μ₀ and n = n₀ + k, the scatter of all is S + Dᵀ(I − 11ᵀ/n)D =
S + ZᵀZ, where Z = D − c·1·1ᵀD, c = (1 − √(1 − k/n))/k. For any scale s, with L Lᵀ = I + s·S,

    det(I + s·(S + ZᵀZ)) = det(I + s·S) · det(XᵀX),    X = [√s·L⁻¹Zᵀ; I]

and det(XᵀX) comes from an orthonormal basis of X's columns, never from XᵀX alone, whose entries would swallow what the
long rows span beside each other. float64 throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.arguments import Glance
from neuralcov.core.records import Record
from neuralcov.core.shapes import Bool, Float
from neuralcov.statistics.moments import LayerMoments

_ROUNDS = 3


def orthonormal(
    columns: Float[Tensor, "*batch rows columns"],
) -> tuple[Float[Tensor, "*batch rows columns"], Float[Tensor, "*batch"]]:
    """Return an orthonormal basis of the columns, and log det XᵀX; NaN where a factorisation fails.

    Args:
        columns: X, linearly independent, no column shorter than about 10⁻¹² of how far it must be told from the others.
    """
    norms = columns.norm(dim=-2)
    basis = columns / norms[..., None, :]
    log_det = norms.log().sum(-1)
    rows, count = columns.shape[-2:]
    shift = 4 * rows * count * torch.finfo(columns.dtype).eps
    for step in range(_ROUNDS):
        gram = basis.mT @ basis
        if step == 0:
            gram.diagonal(dim1=-2, dim2=-1).add_(shift)
        factor, info = torch.linalg.cholesky_ex(gram)
        part = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_det = log_det + torch.where(info == 0, part, torch.nan)
        basis = torch.linalg.solve_triangular(factor, basis.mT, upper=False).mT
    return basis, 2 * log_det


_ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class TrainingCovariance(Record, name="training-covariance"):
    """The training distribution of the layers of one width: mean, and C⁻¹ with C Cᵀ = T = Σ_train + λ·I.

    A layer that was constant in training does not vary and has nothing to measure in: its C⁻¹ is 0, and so is whatever
    is whitened by it.
    """

    mean: Float[Tensor, "layers width"]
    whitening: Float[Tensor, "layers width width"]
    varies: Bool[Tensor, "layers"]

    @classmethod
    def of(cls, training: LayerMoments, ridge: float) -> TrainingCovariance:
        """Factorise the covariance of training moments, with λ = ridge · tr(Σ)/m."""
        covariance = training.covariance
        share = covariance.diagonal(dim1=1, dim2=2).mean(1)
        # Equal float64 numbers have a mean that is off by rounding, and so a variance of about its square.
        varies = share > (_ROUNDING * training.mean.abs().amax(1)).square()
        covariance.diagonal(dim1=1, dim2=2).add_((ridge * share)[:, None])
        return cls.factorised(training.mean, covariance, varies)

    @classmethod
    def factorised(
        cls,
        mean: Float[Tensor, "layers width"],
        covariance: Float[Tensor, "layers width width"],
        varies: Bool[Tensor, "layers"],
    ) -> TrainingCovariance:
        """Factorise T itself."""
        identity = torch.eye(mean.shape[1], dtype=torch.float64, device=mean.device).expand_as(covariance)
        factor, info = torch.linalg.cholesky_ex(torch.where(varies[:, None, None], covariance, identity))
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        inverse = torch.where((info == 0)[:, None, None], inverse, torch.nan)
        # In rows as files hold it, so that a loaded one multiplies in the same order.
        return cls(mean, torch.where(varies[:, None, None], inverse, 0.0).contiguous(), varies)

    @property
    def failed(self) -> Bool[Tensor, "layers"]:
        """Return layers in which T is too close to singular to be factorised."""
        return self.whitening[:, 0, 0].isnan()

    def rows(self, values: Float[Tensor, "batch layers width"]) -> Float[Tensor, "layers batch width"]:
        """Whiten outputs; rows that do not count give anything."""
        return torch.bmm((values.double() - self.mean).transpose(0, 1), self.whitening.mT)

    def moments(self, raw: LayerMoments) -> LayerMoments:
        """Whiten moments of outputs."""
        mean = torch.bmm(self.whitening, (raw.mean - self.mean)[:, :, None])[:, :, 0]
        scatter = self.whitening @ raw.scatter @ self.whitening.mT
        # Where nothing was observed the mean is 0, which is no output.
        return LayerMoments(raw.count, torch.where(raw.count[:, None] > 0, mean, 0.0), (scatter + scatter.mT) / 2)


@dataclass(frozen=True, eq=False)
class _Factors:
    """Factors of I + s·(S + ZᵀZ) for one s: L, a basis of X's columns if there are long rows, the log-determinant."""

    lower: Tensor
    basis: Tensor | None
    log_det: Tensor


@dataclass(frozen=True, eq=False)
class Suite:
    """Whitened outputs of a suite in the layers of one width: moments, and the rows kept apart that count (``here``).

    Factors are computed once: a state is asked many times while a campaign looks for its next input.
    """

    moments: LayerMoments
    long_rows: Float[Tensor, "layers slots width"] | None = None
    here: Bool[Tensor, "layers slots"] | None = None

    @cached_property
    def count(self) -> Float[Tensor, "layers"]:
        """Return how many inputs count, per layer."""
        return self.moments.count if self.here is None else self.moments.count + self.here.sum(1)

    @cached_property
    def mean(self) -> Float[Tensor, "layers width"]:
        """Return the mean of all rows."""
        if self._offsets is None:
            return self.moments.mean
        return self.moments.mean + self._offsets.sum(1) / self.count.clamp(min=1)[:, None]

    @cached_property
    def log_det(self) -> Float[Tensor, "layers"]:
        """Return the logarithm of det(I + Σ), NaN where the factorisation fails."""
        return self._factors(1 / self.count.clamp(min=1)).log_det

    @cached_property
    def volume(self) -> Float[Tensor, "layers"]:
        """Return bits per neuron of each layer; 0 for at most one input."""
        return torch.where(self.count > 1, self._bits(self.log_det), 0.0)

    def gain(self, rows: Float[Tensor, "layers batch width"]) -> Float[Tensor, "batch layers"]:
        """Return the change of ``volume`` if each row alone were added; 0 where nothing was observed."""
        after = self._shrunk
        solved = torch.linalg.solve_triangular(after.lower, (rows - self.mean[:, None]).mT, upper=False)
        if after.basis is not None:
            # The part of [u; 0] that X's columns do not explain: uᵀ(I + VVᵀ)⁻¹u without subtracting two large numbers.
            width = solved.shape[1]
            explained = after.basis @ (after.basis[:, :width].mT @ solved)
            squares = (solved - explained[:, :width]).square().sum(1) + explained[:, width:].square().sum(1)
        else:
            squares = solved.square().sum(1)
        reach = self.count / (self.count + 1) ** 2
        change = after.log_det - self.log_det + torch.log1p(reach * squares.T)
        return torch.where(self.count > 0, self._bits(change), 0.0)

    @cached_property
    def _shrunk(self) -> _Factors:
        return self._factors(1 / (self.count + 1))

    @cached_property
    def _glance(self) -> Glance | None:
        return None if self.here is None else Glance(self.here.any())

    @cached_property
    def _offsets(self) -> Tensor | None:
        """Return d, zero in slots that hold nothing."""
        if self.long_rows is None or self.here is None or (self._glance and self._glance.surely_down()):
            return None
        return torch.where(self.here[:, :, None], self.long_rows - self.moments.mean[:, None], 0.0)

    def _factors(self, scale: Float[Tensor, "layers"]) -> _Factors:
        matrix = self.moments.scatter * scale[:, None, None]
        matrix.diagonal(dim1=1, dim2=2).add_(1.0)
        glance = self._glance  # under way while the host starts the factorisation
        lower, info = torch.linalg.cholesky_ex(matrix)
        log_det = torch.where(info == 0, 2 * lower.diagonal(dim1=1, dim2=2).log().sum(1), torch.nan)
        offsets = self._offsets
        if glance is None or offsets is None or self.here is None:
            return _Factors(lower, None, log_det)
        kept = self.here.sum(1)
        pull = (1 - (1 - kept / self.count.clamp(min=1)).clamp(min=0).sqrt()) / kept.clamp(min=1)
        apart = offsets - pull[:, None, None] * offsets.sum(1, keepdim=True)
        apart = torch.where(self.here[:, :, None], apart, 0.0) * scale.sqrt()[:, None, None]
        solved = torch.linalg.solve_triangular(lower, apart.mT, upper=False)
        slots = torch.eye(apart.shape[1], dtype=apart.dtype, device=apart.device).expand(len(apart), -1, -1)
        basis, rest = orthonormal(torch.cat([solved, slots], dim=1))
        return _Factors(lower, basis, log_det + rest)

    def _bits(self, log_ratio: Float[Tensor, "*rows layers"]) -> Float[Tensor, "*rows layers"]:
        return log_ratio / (self.moments.width * math.log(2))
