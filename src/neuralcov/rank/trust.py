"""Trust in a decision: how much nearer an input lies to training inputs of other classes than to those of its own.

After Jiang, Kim, Guan and Gupta, "To Trust Or Not To Trust A Classifier" (NeurIPS 2018), with two changes. Directions
are compared instead of points: inputs that are darker, blurred or noisy move all neurons of a layer together, and
distances between points then tell more of that than of classes. And the mean over a few neighbours takes the place of
a filter that drops training inputs in thin regions.

A class is what training labels say, not what the model says: where the model errs on training data, its own decisions
would draw the borders that are to be doubted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.shapes import Float, Int
from neuralcov.statistics.traces import TraceStore, trace_of

NEIGHBOURS = 5
# Cosines of a block of inputs with all training inputs, at most.
_AT_ONCE = 1 << 24
# Cosines are rounded to so much, far above what float64 loses: equal inputs get equal scores in any batch.
_STEP = 2.0**-40


@dataclass(frozen=True, eq=False)
class ClassNeighbours:
    """Find the training inputs of each class whose directions are nearest.

    Args:
        layer: where directions are taken.
        directions: of the training inputs, of length 1, those of one class side by side.
        classes: the class of each group of rows.
        counts: rows of each group.
    """

    layer: str
    directions: Float[Tensor, "traces width"]
    classes: Int[Tensor, "groups"]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, traces: TraceStore) -> Self:
        """Return the neighbours that the traces of one layer give, by label where training data had labels."""
        known = traces.predictions if traces.labels is None else traces.labels
        assert known is not None
        order = known.argsort(stable=True)
        classes, counts = torch.unique_consecutive(known[order], return_counts=True)
        # Gathering wants numbers that rise.
        rows = traces.rows(torch.arange(len(traces)))
        (layer,) = traces.names
        directions = _directions(rows)[order.to(rows.device)]
        return cls(layer, directions, classes.to(rows.device), tuple(counts.tolist()))

    def score(self, batch: Activations) -> Float[Tensor, "batch"]:
        """Return, per input, the distance to the nearest other class over that to its predicted class.

        Below 1 another class is nearer. NaN for an input whose class has no training input or is the only one.
        """
        assert batch.predictions is not None
        distances = self.distances(batch)
        is_own = self.classes == batch.predictions.to(distances.device)[:, None]
        own = torch.where(is_own, distances, torch.inf).amin(1)
        other = torch.where(is_own, torch.inf, distances).amin(1)
        # Two distances of 0 say that both classes have this very direction.
        ratio = torch.where(other == own, 1.0, other / own)
        known = is_own.any(1) & (~is_own).any(1) & distances.isfinite().all(1)
        return torch.where(known, ratio, torch.nan)

    def distances(self, batch: Activations) -> Float[Tensor, "batch groups"]:
        """Return the mean Euclidean distance to the ``NEIGHBOURS`` nearest directions of each class."""
        rows = trace_of(batch, (self.layer,)).to(self.directions.device)
        size = max(1, _AT_ONCE // max(1, len(self.directions)))
        parts = [self._near(_directions(part)) for part in torch.split(rows, size)]
        return torch.cat(parts) if len(rows) else rows.new_empty(0, len(self.classes), dtype=torch.float64)

    def _near(self, directions: Tensor) -> Tensor:
        cosines = directions @ self.directions.T
        parts = [
            part.topk(min(NEIGHBOURS, part.shape[1]), dim=1).values
            for part in torch.split(cosines, list(self.counts), dim=1)
        ]
        # Rounding keeps the order, so that only the nearest need it.
        nearest = [part.div(_STEP).round_().mul_(_STEP) for part in parts]
        return torch.stack([(2 - 2 * part).clamp(min=0).sqrt().mean(1) for part in nearest], dim=1)


def _directions(rows: Tensor) -> Tensor:
    """Return rows divided by their lengths, in float64; a row of zeros stays one."""
    exact = rows.double()
    lengths: Tensor = torch.linalg.vector_norm(exact, dim=1, keepdim=True)
    return exact / lengths.clamp(min=torch.finfo(torch.float64).tiny)
