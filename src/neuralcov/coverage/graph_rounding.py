"""Whether what a replay gave differs from plain calls by rounding alone.

Libraries of a device may choose another kernel for a product while it is recorded than in a plain call, which adds up
in another order. Such numbers agree in their leading half: for every input a layer's outputs differ by at most the
root of the precision that the model computes with, relative to their length. What reads memory that was overwritten,
or misses what Python decided, is further off.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Float
from neuralcov.coverage.graph_memory import alike
from neuralcov.coverage.suite_counts import decisions_of
from neuralcov.tap import Tap

# TF32 keeps ten bits behind the first one. Four times its precision leaves room for many layers.
_TF32 = 4 * 2.0**-10


def allowed_rounding(tap: Tap) -> float:
    """Return how far outputs of a model may differ relative to their length, by what its passes compute with."""
    kinds = {parameter.dtype for parameter in tap.model.parameters() if parameter.is_floating_point()}
    if torch.is_autocast_enabled("cuda"):
        kinds.add(torch.get_autocast_dtype("cuda"))
    found = math.sqrt(max((torch.finfo(kind).eps for kind in kinds), default=torch.finfo(torch.float32).eps))
    backends = torch.backends
    if torch.float32 in kinds and (backends.cuda.matmul.allow_tf32 or backends.cudnn.allow_tf32):
        return max(found, _TF32)
    return found


def difference(plain: Activations, replayed: Activations, most: float) -> tuple[str | None, bool]:
    """Return in words what a replay gave otherwise than plain calls, and whether some outputs are rounded otherwise."""
    rounded = torch.zeros(plain.size, dtype=torch.bool, device=plain.device)
    for name, outputs in plain.layers.items():
        if name not in replayed.layers or not rounded_alike(outputs, replayed.layers[name], most):
            return f"a replay gave other outputs of layer {name!r} than plain calls", False
        rounded |= _other_rows(outputs, replayed.layers[name]).to(rounded.device)
    if set(plain.present) != set(replayed.present) or len(plain.layers) != len(replayed.layers):
        return "a replay gave other layers than plain calls", False
    keys, classes = [(batch.keys, decisions_of(batch)) for batch in (plain, replayed)], "classes"
    for what, one, other in zip(("content keys", classes), *keys, strict=True):
        if (one is None) != (other is None):
            return f"a replay gave other {what} than plain calls", False
        if one is not None and other is not None:
            # A class may follow from what was rounded.
            there = ~rounded.to(one.device) if what == classes else slice(None)
            if not alike(one[there], other[there]):
                return f"a replay gave other {what} than plain calls", False
    return None, bool(rounded.any())


def _other_rows(one: Tensor, other: Tensor) -> Tensor:
    return ~((one == other) | ((one != one) & (other != other))).all(1)


def rounded_alike(one: Float[Tensor, "batch width"], other: Float[Tensor, "batch width"], most: float) -> bool:
    """Return whether two outputs of a layer differ by rounding alone; waits for the device.

    >>> outputs = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.1, 0.2]])
    >>> rounded_alike(outputs, outputs * (1 + 1e-6), 1e-4)
    True
    >>> rounded_alike(outputs, outputs.flip(0), 1e-4)
    False
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if any(not torch.equal(kind(one), kind(other)) for kind in (torch.isnan, torch.isposinf, torch.isneginf)):
        return False
    finite = one.isfinite()
    wide, apart = (part.masked_fill(~finite, 0).double() for part in (one, one - other))
    lengths = wide.norm(dim=1)
    # Outputs of an input that are nearly all zero are measured by those of the others.
    return bool((apart.norm(dim=1) <= most * lengths.clamp(min=lengths.mean())).all())
