"""One batch in whitened coordinates: its rows, how long they are, and which inputs lie too far out to be measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.activations import Stack
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.lvc.room import STRETCHED, TOO_FAR
from neuralcov.criteria.lvc.volume import TrainingCovariance
from neuralcov.statistics.moments import LayerMoments


@dataclass(frozen=True, eq=False)
class Whitened:
    """Rows per group of layers; squared lengths divided by m, and which rows count, for the layers of all groups.

    ``valid`` is ``None`` if every row counts in every layer, ``varies`` says which layers have a length at all.
    """

    rows: tuple[Float[Tensor, "_ batch _"], ...]
    squares: Float[Tensor, "batch layers"]
    valid: Bool[Tensor, "batch layers"] | None
    varies: Bool[Tensor, "layers"]

    @classmethod
    def of(cls, training: Sequence[TrainingCovariance], stacks: Sequence[Stack]) -> Whitened:
        """Whiten a batch."""
        rows = tuple(t.rows(stack.values) for t, stack in zip(training, stacks, strict=True))
        squares = torch.cat([y.square().sum(2).T / y.shape[2] for y in rows], dim=1)
        valid = None
        if any(stack.valid is not None for stack in stacks):
            valid = torch.cat([stack.valid_mask() for stack in stacks], dim=1)
        return cls(rows, squares, valid, torch.cat([t.varies for t in training]))

    def take(self, inputs: slice | Tensor) -> Whitened:
        """Return the same for some of the inputs."""
        valid = None if self.valid is None else self.valid[inputs]
        return Whitened(tuple(y[:, inputs] for y in self.rows), self.squares[inputs], valid, self.varies)

    @property
    def size(self) -> int:
        """Return the number of inputs."""
        return len(self.squares)

    @cached_property
    def valid_mask(self) -> Bool[Tensor, "batch layers"]:
        """Return which rows count, as a mask that is always there."""
        return torch.ones_like(self.squares, dtype=torch.bool) if self.valid is None else self.valid

    @cached_property
    def measurable(self) -> Bool[Tensor, "batch"]:
        """Return inputs that lie nowhere beyond what can be measured; what is not a number lies beyond it."""
        near = self.squares <= TOO_FAR**2
        return (near if self.valid is None else near | ~self.valid).all(1)

    @cached_property
    def short(self) -> bool:
        """Return whether all rows are known to be ordinary ones, the usual case. Looks only where looking is free."""
        return not self.size or (self.squares.device.type == "cpu" and bool((self.squares <= STRETCHED**2).all()))

    @cached_property
    def columns(self) -> tuple[slice, ...]:
        """Return where each group's layers stand among all."""
        ends = itertools.accumulate(len(y) for y in self.rows)
        return tuple(slice(end - len(y), end) for end, y in zip(ends, self.rows, strict=True))

    @cached_property
    def layers(self) -> Int[Tensor, "#batch"]:
        """Return how many layers each input has that vary in training."""
        return self.varies.sum()[None] if self.valid is None else (self.valid & self.varies).sum(1)

    def lengths(self, corrected: Callable[[Tensor], Tensor] | None = None) -> Float[Tensor, "batch"]:
        """Return each input's length, √(mean over its layers of ‖y‖²/m); 0 for one that has no layer."""
        squares = self.squares if corrected is None else corrected(self.squares)
        # Where a layer does not vary, everything is whitened to 0.
        total = (squares if self.valid is None else squares.masked_fill(~self.valid, 0)).sum(1)
        return (total / self.layers.clamp(min=1)).sqrt()


def leaving_one_out(moments: Sequence[LayerMoments]) -> Callable[[Tensor], Tensor]:
    """Return the correction of squared lengths of training inputs to what each has against all others.

    A training input pulls mean and covariance towards itself and so looks too short. With q = dᵀΣ⁻¹d among n inputs,
    the others alone give q' = n/(n − 1) · q / (1 − q/(n − 1)), by the formula of Sherman and Morrison.
    """
    count = torch.cat([m.count for m in moments])
    width = torch.cat([torch.full_like(m.count, m.width) for m in moments])

    def corrected(squares: Tensor) -> Tensor:
        others = (count - 1).clamp(min=1)
        leverage = (squares * width / others).clamp(max=1 - torch.finfo(torch.float64).eps)
        return count / others * squares / (1 - leverage)

    return corrected
