"""Fréchet distance of two sets of features, as between two normal distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from neuralcov.core.shapes import Float


def frechet_distance(ours: Float[Tensor, "n width"], theirs: Float[Tensor, "m width"]) -> float:
    r""":math:`\lVert\mu_1-\mu_2\rVert^2 + \operatorname{tr}(\Sigma_1 + \Sigma_2 - 2(\Sigma_1\Sigma_2)^{1/2})`.

    The trace of the root is that of the root of the symmetric :math:`S\Sigma_2 S` with :math:`SS = \Sigma_1`, whose
    eigenvalues a GPU finds in a second where those of :math:`\Sigma_1\Sigma_2` take ten.

    >>> import torch
    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> round(frechet_distance(x, x + 1), 6)
    3.0
    """
    first, second = ours.double(), theirs.double()
    values, vectors = torch.linalg.eigh(torch.cov(first.T))
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    other = torch.cov(second.T)
    shared = torch.linalg.eigvalsh(root @ other @ root).clamp(min=0).sqrt().sum()
    apart = (first.mean(0) - second.mean(0)).square().sum()
    return float(apart + values.clamp(min=0).sum() + other.trace() - 2 * shared)
