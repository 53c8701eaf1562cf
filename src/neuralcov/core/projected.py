"""Layers seen along a few random directions, for statistics whose size is the square of a layer's width."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.digests import GOLDEN_RATIO, splitmix64
from neuralcov.core.layout import Layout
from neuralcov.core.shapes import Float


def projected_layout(layout: Layout, directions: int) -> Layout:
    """Return the layout of projected layers: none is wider than the number of directions."""
    widths: Mapping[str, int] = {name: min(width, directions) for name, width in layout.widths.items()}
    return Layout(widths, layout.device)


def projected(batch: Activations, directions: int) -> Activations:
    """Return a batch whose wider layers are projected to so many random directions; once for all who ask.

    Direction j of a layer of m neurons is s_ij/√m with random signs s, which follow from the layer's name and width
    alone: the variance along it is the neurons' mean variance where they do not correlate. In float64, so that the
    result is the same in any batch up to rounding of one product.
    """

    def project() -> Activations:
        layers = {
            name: outputs if outputs.shape[1] <= directions else _project(name, outputs, directions)
            for name, outputs in batch.layers.items()
        }
        return replace(batch, layers=layers, keys=batch.content_keys)

    return batch.shared(("projected", directions), project)


def _project(name: str, outputs: Float[Tensor, "batch width"], directions: int) -> Float[Tensor, "batch directions"]:
    width = outputs.shape[1]
    signs: Tensor = _signs(name, width, directions, outputs.device)
    return outputs.double() @ signs / math.sqrt(width)


@lru_cache(maxsize=64)
def _signs(name: str, width: int, directions: int, device: torch.device) -> Float[Tensor, "width directions"]:
    """Return a sign for each neuron and direction: the top bit of a mixed number of its place."""
    start = int.from_bytes(hashlib.sha256(f"neuralcov.projection/{name}".encode()).digest()[:8], "little", signed=True)
    places = torch.arange(width * directions, device=device) * GOLDEN_RATIO + start
    return torch.where(splitmix64(places) < 0, 1.0, -1.0).double().view(width, directions)
