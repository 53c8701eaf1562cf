"""What one batch shows: its kinds, and the inputs that show any."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Bool, Int
from neuralcov.criteria.kind_set import FOLD_COUNT, FOLDS, KindSet, looking_is_free


@dataclass(frozen=True, eq=False)
class ShownKinds:
    """What a batch shows: its kinds, the same as the set keeps them, and the inputs that show any."""

    kinds: Int[Tensor, "batch columns 2"]
    entries: KindSet
    present: Bool[Tensor, "batch columns"]
    finite: Bool[Tensor, "batch"]

    @cached_property
    def valid(self) -> Bool[Tensor, "batch"]:
        """Return inputs that take part: finite, and with a kind in some column."""
        return self.finite & (self.present[:, 0] if self.present.shape[1] == 1 else self.present.any(1))

    def of_inputs(self, inputs: Bool[Tensor, "batch"]) -> Bool[Tensor, "entries"]:
        """Return the entries that some inputs have a kind in."""
        # Where there is one column, a valid input has a kind in it.
        return inputs if self.present.shape[1] == 1 else (inputs[:, None] & self.present).view(-1)

    def by_input(self, entries: Tensor) -> Tensor:
        """Return what belongs to entries by input and column."""
        return entries.view(self.kinds.shape[:2])


def fold_bits(batch: Activations, columns: int) -> Int[Tensor, "entries"]:
    """Return, for each input and column, the bit of the input's fold."""
    one = torch.ones((), dtype=FOLDS, device=batch.device)
    return (one << batch.folds(FOLD_COUNT).to(FOLDS))[:, None].expand(-1, columns).reshape(-1)


def input_counts(shown: ShownKinds) -> Int[Tensor, "3"]:
    """Count the inputs of a batch: valid, not finite, without a kind."""
    finite, valid = shown.finite.sum(), shown.valid.sum()
    if looking_is_free(finite.device):
        return torch.tensor([int(valid), len(shown.kinds) - int(finite), int(finite) - int(valid)])
    return torch.stack([valid, len(shown.kinds) - finite, finite - valid])
