"""Run a network once over a suite and keep what every variant of LCC is worked out from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from neuralcov import Activations
from neuralcov.core.shapes import Bool, Float, Int
from neuralcov.criteria.lcc.boxes import signs

FOLDS = 10


@dataclass(frozen=True)
class Directions:
    """Say along how many random directions, and which, outputs are projected."""

    count: int = 8
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Projections:
    """Hold, for every input, its place along every direction of every layer.

    Args:
        widths: the layers' widths by name, in order.
        places: by set of directions, ``P_j``.
        decisions: the classes the model chose.
        folds: the tenth of the inputs that each belongs to, by its content.
        valid: which inputs show a kind in which layer.
    """

    widths: Mapping[str, int]
    places: Mapping[Directions, Float[Tensor, "layers n count"]]
    decisions: Int[Tensor, "n"]
    folds: Int[Tensor, "n"]
    valid: Bool[Tensor, "layers n"]

    def __len__(self) -> int:
        return len(self.decisions)

    def take(self, rows: Tensor) -> Projections:
        """Return some of the inputs."""
        places = {directions: some[:, rows] for directions, some in self.places.items()}
        return replace(
            self, places=places, decisions=self.decisions[rows], folds=self.folds[rows], valid=self.valid[:, rows]
        )


def project(batches: Iterable[Activations], wanted: Sequence[Directions]) -> Projections:
    """Project the outputs of every batch along every wanted direction."""
    parts = [_project(batch, tuple(wanted)) for batch in batches]
    places = {directions: torch.cat([part.places[directions] for part in parts], dim=1) for directions in wanted}
    return Projections(
        parts[0].widths,
        places,
        torch.cat([part.decisions for part in parts]),
        torch.cat([part.folds for part in parts]),
        torch.cat([part.valid for part in parts], dim=1),
    )


def _project(batch: Activations, wanted: tuple[Directions, ...]) -> Projections:
    device = batch.device
    columns, valid = [], []
    for name, outputs in batch.layers.items():
        factors = _factors(name, outputs.shape[1], wanted, device)
        present = batch.present.get(name)
        here = batch.finite if present is None else batch.finite & present.to(device)
        columns.append(outputs.to(device).double().nan_to_num(0.0, 0.0, 0.0) @ factors)
        valid.append(here)
    # As layers after inputs they lie side by side for each layer's own tables.
    together = torch.stack(columns)
    places = dict(zip(wanted, torch.split(together, [directions.count for directions in wanted], dim=2), strict=True))
    decisions = batch.predictions
    return Projections(
        {name: outputs.shape[1] for name, outputs in batch.layers.items()},
        places,
        torch.full((batch.size,), -1, device=device) if decisions is None else decisions.to(device).long(),
        batch.folds(FOLDS),
        torch.stack(valid),
    )


@lru_cache(maxsize=512)
def _factors(layer: str, width: int, wanted: tuple[Directions, ...], device: torch.device) -> Tensor:
    return torch.cat([signs((layer,), width, some.count, some.seed, device)[0] for some in wanted], dim=1)
