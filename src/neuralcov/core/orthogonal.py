"""Orthonormal bases of columns of wildly different lengths and directions, by batched products alone.

A Gram matrix XᵀX squares what it is made of, so that columns that differ by one part in 10⁸ look equal in it. Here it
is taken three times (shifted CholeskyQR3): a first factor R₁ of XᵀX + shift need not be right, only X·R₁⁻¹ must be
better conditioned than X, which it is by the square root of the shift; two more rounds then reach an orthonormal basis,
and the product of the three factors is the R of a QR decomposition, with an error of about 10⁻¹⁶ of each column's
length, as Householder's has. It consists of a few batched products, where Householder's would go column by column.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Float

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
