"""A campaign told to another process: what its folder holds, as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralcov.fuzz.campaign.log import WaveRecord


@dataclass(frozen=True, eq=False)
class CampaignCopy:
    """Hold a campaign between two waves; it is read as its folder is.

    Args:
        settled: what was asked for, as ``config.json`` says it.
        arrays: the root inputs with their labels, predictions, margins and which serve as seeds.
        packs: the waves so far, as the log holds them.
        coverage: the state behind them; ``None`` where coverage takes no part.
    """

    settled: dict[str, Any]
    arrays: dict[str, np.ndarray]
    packs: Sequence[bytes]
    coverage: bytes | None
    path: str = "the campaign"

    def config(self) -> dict[str, Any]:
        """Return what was asked for."""
        return self.settled

    def seeds(self) -> dict[str, np.ndarray]:
        """Return what is known of the root inputs."""
        return self.arrays

    def records(self) -> Iterator[WaveRecord]:
        """Yield the waves of the log, in order."""
        yield from map(WaveRecord.from_bytes, self.packs)

    def to_message(self) -> dict[str, Any]:
        """Return it as bytes and arrays, to be sent."""
        told = {"config": json.dumps(self.settled), "packs": list(self.packs), "coverage": self.coverage}
        return {**told, "arrays": dict(self.arrays)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> CampaignCopy:
        """Read what ``to_message`` gave."""
        arrays = {name: np.array(array) for name, array in message["arrays"].items()}
        return cls(json.loads(message["config"]), arrays, message["packs"], message["coverage"])
