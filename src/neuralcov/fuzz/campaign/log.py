"""The log of waves: what one wave did, as bytes, and an append-only file of them that survives a kill."""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from neuralcov.core.errors import CampaignError

# Mark, bytes of content, and their checksum.
_HEAD = struct.Struct("<4sQI")
_MARK = b"ncvw"
# No pack is as long as this.
_LONGEST = 1 << 40


class Log:
    """The waves of a campaign, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def append(self, content: bytes) -> None:
        """Commit a pack: one write, which a later kill of this process does not undo."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        pack = memoryview(_HEAD.pack(_MARK, len(content), zlib.crc32(content)) + content)
        while pack:
            pack = pack[self._file.write(pack) :]

    def sync(self) -> None:
        """Have the disk hold what was appended, for the sake of power cuts."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Be done with the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def repair(self) -> int:
        """Cut off a pack that was not written to its end; give how many bytes that was."""
        if not self.path.is_file():
            return 0
        whole = sum(_HEAD.size + len(content) for content in self.read())
        torn = self.path.stat().st_size - whole
        if torn:
            with self.path.open("r+b") as file:
                file.truncate(whole)
        return torn

    def read(self) -> Iterator[bytes]:
        """Every complete pack. A torn one at the end is left out; damage in the middle is an error."""
        if not self.path.is_file():
            return
        # Packs that are appended meanwhile are not looked at: half of one is no damage.
        start, size = 0, self.path.stat().st_size
        with self.path.open("rb") as file:
            while size - start >= _HEAD.size:
                mark, length, checksum = _HEAD.unpack(file.read(_HEAD.size))
                end = start + _HEAD.size + (length if mark == _MARK else 0)
                whole = mark == _MARK and end <= size
                content = file.read(length) if whole else b""
                if not whole or zlib.crc32(content) != checksum:
                    if end >= size and not self._pack_behind(start, size):
                        return
                    raise CampaignError(
                        f"{self.path}: damaged {size - start:,} bytes before its end; restore it from a copy"
                    )
                yield content
                start = end

    def _pack_behind(self, start: int, size: int) -> bool:
        """Whether another pack begins behind one that seems to be the last: then its length is damaged."""
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
            place = content.find(_MARK, start + 1, size - _HEAD.size + len(_MARK))
            while place >= 0:
                # The bytes of a picture may look like a mark, but hardly like a mark before a length.
                if _HEAD.unpack_from(content, place)[1] < _LONGEST:
                    return True
                place = content.find(_MARK, place + 1, size - _HEAD.size + len(_MARK))
        return False


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
class WaveRecord:
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

    def same_as(self, other: WaveRecord) -> bool:
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
    def from_bytes(cls, content: bytes) -> WaveRecord:
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
