"""How far recording has come for each shape of inputs, and what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from neuralcov.core.activations import Activations
from neuralcov.core.counted import counted
from neuralcov.coverage.pace import Pace


@dataclass(eq=False)
class CapturedUpdate:
    """Hold one recorded update of one shape: where its input goes, and where the layers' outputs appear.

    ``shared`` is what criteria computed of the batch or will need of it, which each replay computes anew in the same
    place. ``rounds`` says whether a replay rounded some outputs otherwise than plain calls.
    """

    replay: Callable[[], None]
    inputs: Any
    outputs: Activations
    shared: Mapping[Hashable, Any]
    rounds: bool = False


@dataclass(eq=False)
class ShapeProgress:
    """Tell how far one shape of inputs has come: plain batches first, then a recording or why there is none."""

    told: str
    plain: int = 0
    replayed: int = 0
    why: str | None = None
    pace: Pace | None = None
    recording: CapturedUpdate | None = None
    rounds: bool = False

    def take(self, recording: CapturedUpdate) -> None:
        """Replay this shape from now on."""
        self.recording, self.rounds, self.pace = recording, recording.rounds, None

    def refuse(self, why: str) -> None:
        """Run this shape by plain calls from now on."""
        self.why, self.recording, self.pace = why, None, None

    def sentence(self) -> str:
        """Tell in words what was done."""
        if self.replayed:
            aside = "; a replay rounds some outputs otherwise" if self.rounds else ""
            ran = f"{counted(self.replayed, 'batch')} replayed and {self.plain} run by plain calls"
            return f"inputs {self.told}: recorded, {ran}{aside}"
        if self.recording is not None:
            return (
                f"inputs {self.told}: recorded after {counted(self.plain, 'batch')} run by plain "
                f"calls, not replayed yet"
            )
        why = self.why or "a shape is recorded at its third batch within one block"
        return f"inputs {self.told}: {counted(self.plain, 'batch')} run by plain calls; {why}"
