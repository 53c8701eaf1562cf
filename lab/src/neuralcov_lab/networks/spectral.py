"""Spectral normalisation (Miyato et al., 2018): weights divided by their largest singular value."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize


def normalise_spectrum(module: nn.Module) -> None:
    """Divide the weight of ``module`` by an estimate of its spectral norm, renewed in every training pass."""
    weight = cast(Tensor, module.weight)
    parametrize.register_parametrization(module, "weight", _Spectral(weight.detach()))


class _Spectral(nn.Module):
    """One step of power iteration per pass, in full precision whatever the rest of the network runs in."""

    left: Tensor
    right: Tensor

    def __init__(self, weight: Tensor, warm_up: int = 15) -> None:
        super().__init__()
        matrix = weight.flatten(1)
        self.register_buffer("left", functional.normalize(torch.randn(matrix.shape[0]), dim=0))
        self.register_buffer("right", functional.normalize(torch.randn(matrix.shape[1]), dim=0))
        for _ in range(warm_up):
            self._iterate(matrix)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight, of spectral norm about 1."""
        with torch.autocast(weight.device.type, enabled=False):
            matrix = weight.flatten(1)
            if self.training:
                self._iterate(matrix.detach())
            # Copies, since the next pass overwrites the buffers before this one's gradient is taken.
            norm = self.left.clone() @ (matrix @ self.right.clone())
            return weight / norm.clamp(min=1e-8)

    @torch.no_grad()
    def _iterate(self, matrix: Tensor) -> None:
        self.right.copy_(functional.normalize(matrix.T @ self.left, dim=0))
        self.left.copy_(functional.normalize(matrix @ self.right, dim=0))
