"""What one wave did: a row per candidate, and the inputs worth keeping; as bytes for the log and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from neuralcov.core.errors import CampaignError

INVALID, NO_GAIN, KEPT, LOST = range(4)
VERDICTS = ("not valid", "no gain", "kept", "no result")
# What can be wrong with a mutant; checks of the user's own follow.
KINDS = ("misprediction", "not finite", "exception", "time-out", "disagreement")
MISPREDICTION, NOT_FINITE, EXCEPTION, TIME_OUT, DISAGREEMENT = range(5)

_COLUMNS: dict[str, Any] = {
    "slot": np.int32,
    "seed": np.int32,
    "fresh": np.uint8,
    "tries": np.int16,
    "mutation": np.int16,
    "setting": np.int64,
    "place": np.int32,
    "size": np.int32,
    "verdict": np.uint8,
    "prediction": np.int64,
    "kinds": np.int32,
}


@dataclass(frozen=True, eq=False)
class Record:
    """One wave.

    Every column has a row per seed under way, in order: the ``slot`` it stands in, the ``seed`` (an entry of the
    queue), whether it was sampled in this wave (``fresh``), how many ``tries`` it has had, and of the last of them,
    the candidate that was judged unless none was valid: ``mutation`` and ``setting``, the ``place`` among ``size``
    inputs that this mutation was applied to, the ``verdict``, the predicted class (−1: none) and, as bits, the
    ``kinds`` of fault it shows.

    ``inputs`` are those of the rows that were kept or show a fault, ``references`` the moved root inputs of the rows
    that were kept after a geometric mutation. ``messages`` say what the model threw, by row.
    """

    wave: int
    slot: np.ndarray
    seed: np.ndarray
    fresh: np.ndarray
    tries: np.ndarray
    mutation: np.ndarray
    setting: np.ndarray
    place: np.ndarray
    size: np.ndarray
    verdict: np.ndarray
    prediction: np.ndarray
    kinds: np.ndarray
    inputs: np.ndarray
    references: np.ndarray
    messages: dict[int, str] = field(default_factory=dict)
    limit: int | None = None
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def kept(self) -> np.ndarray:
        """Rows that were added to the queue."""
        return np.flatnonzero(self.verdict == KEPT)

    @property
    def saved(self) -> np.ndarray:
        """Rows whose inputs are in ``inputs``."""
        return np.flatnonzero((self.verdict == KEPT) | (self.kinds != 0))

    def same_as(self, other: Record) -> bool:
        """Whether both say the same of every candidate; times do not count."""
        columns = (*_COLUMNS, "inputs", "references")
        return self.wave == other.wave and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in columns
        )

    def to_bytes(self) -> bytes:
        """A pack of the log: safetensors, with the rest as JSON beside the arrays."""
        arrays = {name: np.ascontiguousarray(getattr(self, name), kind) for name, kind in _COLUMNS.items()}
        arrays |= {name: np.ascontiguousarray(getattr(self, name)) for name in ("inputs", "references")}
        rest = {
            "wave": self.wave,
            "limit": self.limit,
            "seconds": self.seconds,
            "messages": {str(row): said for row, said in self.messages.items()},
        }
        return save(arrays, metadata={"wave": json.dumps(rest)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """The wave a pack holds."""
        try:
            arrays = {name: np.array(array) for name, array in load(content).items()}
            length = int.from_bytes(content[:8], "little")
            rest = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["wave"])
            # Earlier versions told a class even where the model gave NaN.
            arrays["prediction"][arrays["kinds"] >> NOT_FINITE & 1 == 1] = -1
            rest["messages"] = {int(row): said for row, said in rest["messages"].items()}
            known = {entry.name for entry in fields(cls)}
            return cls(**{name: value for name, value in (arrays | rest).items() if name in known})
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CampaignError(
                f"a pack of the log cannot be read ({error}): was it written by another version?"
            ) from error
