"""The log of waves: the columns of a candidate, what one wave did as bytes, and an append-only file of waves."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from neuralcov.core.errors import CampaignError

# What became of a candidate.
REJECTED, NO_GAIN, KEPT, NO_RESULT = range(4)
# What can be wrong with a mutant, a bit each; checks of the user's own follow.
FAULT_TYPES = ("misprediction", "not finite", "exception", "time-out", "disagreement")
MISPREDICTION, NOT_FINITE, EXCEPTION, TIME_OUT, DISAGREEMENT = range(5)

# The most mutations that make one candidate.
MOST_STACKED = 4

# A candidate: one row per parent under way in a wave. From `mutation` on, the columns tell of the last mutant made of
# the parent: the one that was judged, unless none was acceptable.
CANDIDATE = np.dtype(
    [
        ("lane", np.int32),  # which of the wave's lanes the parent advances in
        ("parent", np.int32),  # the entry of the corpus that is mutated
        ("fresh", np.uint8),  # 1 if the parent was sampled in this wave
        ("tries", np.int16),  # mutants made of the parent so far, in this wave and those before
        ("mutation", np.int16),  # which mutation
        ("setting", np.int64),  # in what form, see Mutation.choose
        ("row", np.int32),  # the candidate's row in the batch that the mutation was applied to
        ("batch_size", np.int32),  # how many inputs that batch had
        ("verdict", np.uint8),  # REJECTED by validity, NO_GAIN, KEPT, or NO_RESULT of the model
        ("prediction", np.int64),  # the predicted class, −1 for none
        ("fault_types", np.int32),  # what is wrong with it, as bits of FAULT_TYPES
        ("saved", np.uint8),  # 1 if the mutant itself is in the log
        ("margin", np.float64),  # probability of the right class minus that of the rival; NaN if nobody asked
        ("rival", np.int64),  # the strongest class beside the right one; −1 if nobody asked
        # Mutations that followed at once, before the model was run; −1 for none.
        ("then_mutation", np.int16, (MOST_STACKED - 1,)),
        ("then_setting", np.int64, (MOST_STACKED - 1,)),
        ("then_row", np.int32, (MOST_STACKED - 1,)),
        ("then_batch_size", np.int32, (MOST_STACKED - 1,)),
    ]
)
_NAMES = CANDIDATE.names or ()
# Files keep the names that these columns had first.
_STORED = {"lane": "slot", "parent": "seed", "row": "place", "batch_size": "size", "fault_types": "kinds"}
# Logs of the first campaigns lack these; they saved every mutant that was kept or showed a fault.
_THEN = ("then_mutation", "then_setting", "then_row", "then_batch_size")
_ADDED = ("saved", "margin", "rival", *_THEN)
# Columns that repeat a mutation; those of mutations that followed have "then_" before their names.
_APPLIED = ["mutation", "setting", "row", "batch_size"]
# Columns that tell how a candidate was made of its parent.
MADE = (*_APPLIED, *_THEN)


def columns(*names: str) -> list[tuple[str, Any]]:
    """Return the declarations of some columns of a candidate, for tables that hold them too."""
    return [(name, CANDIDATE[name]) for name in names]


APPLIED = np.dtype(columns(*_APPLIED))


@dataclass(frozen=True)
class AppliedMutation:
    """Say which mutation a lineage holds, in what form, and in which row of how large a batch it was drawn."""

    mutation: int
    setting: int
    row: int
    batch_size: int

    @classmethod
    def of(cls, row: Any) -> AppliedMutation:
        """Read it from a row of a table that has these columns."""
        return cls(*(int(row[name]) for name in _APPLIED))


def stages(table: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for the first mutation of every candidate, the second and so on: the rows that have it, and ``APPLIED``.

    >>> table = no_candidates(2)
    >>> table["then_mutation"][1, 0] = 3
    >>> [(rows.tolist(), applied["mutation"].tolist()) for rows, applied in stages(table)]
    [([0, 1], [0, 0]), ([1], [3])]
    """
    first = np.zeros(len(table), APPLIED)
    for name in _APPLIED:
        first[name] = table[name]
    yield np.arange(len(table)), first
    for stage in range(MOST_STACKED - 1):
        rows = np.flatnonzero(table["then_mutation"][:, stage] >= 0)
        if not len(rows):
            return
        applied = np.zeros(len(rows), APPLIED)
        for name in _APPLIED:
            applied[name] = table[f"then_{name}"][rows, stage]
        yield rows, applied


def set_stage(table: np.ndarray, rows: np.ndarray, stage: int, applied: np.ndarray) -> None:
    """Write into rows of a table which mutation they have first (stage 0), second and so on."""
    for name in _APPLIED:
        if stage:
            table[f"then_{name}"][rows, stage - 1] = applied[name]
        else:
            table[name][rows] = applied[name]


def any_stage(table: np.ndarray, holds: np.ndarray) -> np.ndarray:
    """Return which candidates hold a mutation for which ``holds``, an entry per mutation, is true."""
    found = np.zeros(len(table), dtype=bool)
    for rows, applied in stages(table):
        found[rows] |= holds[applied["mutation"]]
    return found


def steps_of(row: Any) -> tuple[AppliedMutation, ...]:
    """Return the mutations of one candidate, in order."""
    then = zip(*(row[name] for name in _THEN), strict=True)
    return (AppliedMutation.of(row), *(AppliedMutation(*map(int, step)) for step in then if step[0] >= 0))


def no_candidates(count: int) -> np.ndarray:
    """Return so many rows of a table of candidates about which nothing is known."""
    table = np.zeros(count, CANDIDATE)
    table["prediction"] = table["rival"] = table["then_mutation"] = -1
    table["margin"] = np.nan
    return table


def applied_table(steps: Iterable[AppliedMutation]) -> np.ndarray:
    """Return mutations as a table."""
    return np.array([astuple(step) for step in steps], APPLIED)


@dataclass(frozen=True, eq=False)
class WaveRecord:
    """Tell what one wave did.

    Args:
        wave: its number.
        candidates: ``(parents under way,)`` of ``CANDIDATE``, in the order in which they were judged.
        inputs: the mutants of rows that are marked as saved, as they are stored.
        comparisons: the moved root inputs of rows that were kept after a geometric mutation.
        messages: what the model threw, by row.
        limit: how many parents may be sampled in all.
        seconds: when it ended, since the start of the campaign.
        base: how many waves were known where it was drawn, if others came in between.
        observed: the rows that coverage observed, where these are not those that were kept.
        unsaved: the mutants of these that are not marked as saved.
    """

    wave: int
    candidates: np.ndarray
    inputs: np.ndarray
    comparisons: np.ndarray
    messages: dict[int, str] = field(default_factory=dict)
    limit: int | None = None
    seconds: float = 0.0
    base: int | None = None
    observed: np.ndarray | None = None
    unsaved: np.ndarray | None = None

    @property
    def kept(self) -> np.ndarray:
        """Return the rows that were added to the corpus."""
        return np.flatnonzero(self.candidates["verdict"] == KEPT)

    @property
    def saved(self) -> np.ndarray:
        """Return the rows whose mutants are in ``inputs``."""
        return np.flatnonzero(self.candidates["saved"])

    @property
    def follows_others(self) -> bool:
        """Return whether waves came in between that it was drawn without: it cannot be searched again."""
        return self.base is not None and self.base != self.wave

    def observed_inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that coverage observed, and their mutants as they are stored."""
        rows = self.kept if self.observed is None else self.observed
        inside = np.isin(rows, self.saved)
        inputs = np.empty((len(rows), *self.inputs.shape[1:]), self.inputs.dtype)
        inputs[inside] = self.inputs[np.searchsorted(self.saved, rows[inside])]
        inputs[~inside] = self.unsaved if self.unsaved is not None else inputs[~inside]
        return rows, inputs

    def same_as(self, other: WaveRecord) -> bool:
        """Return whether both say the same of every candidate; times do not count."""
        mine, theirs = self.candidates, other.candidates
        return (
            self.wave == other.wave
            and len(mine) == len(theirs)
            and all(np.array_equal(mine[name], theirs[name], equal_nan=name == "margin") for name in _NAMES)
            and np.array_equal(self.inputs, other.inputs)
            and np.array_equal(self.comparisons, other.comparisons)
        )

    def to_bytes(self) -> bytes:
        """Return a pack of the log: safetensors, with the rest as JSON beside the arrays."""
        arrays = {_STORED.get(name, name): np.ascontiguousarray(self.candidates[name]) for name in _NAMES}
        arrays["inputs"] = np.ascontiguousarray(self.inputs)
        arrays["references"] = np.ascontiguousarray(self.comparisons)
        if self.observed is not None:
            arrays["observed"] = np.ascontiguousarray(self.observed)
        if self.unsaved is not None:
            arrays["unsaved"] = np.ascontiguousarray(self.unsaved)
        rest = {
            "wave": self.wave,
            "limit": self.limit,
            "seconds": self.seconds,
            "messages": {str(row): said for row, said in self.messages.items()},
            **({} if self.base is None else {"base": self.base}),
        }
        return save(arrays, metadata={"wave": json.dumps(rest)})

    @classmethod
    def from_bytes(cls, content: bytes) -> WaveRecord:
        """Read the wave that a pack holds."""
        try:
            arrays = load(content)
            length = int.from_bytes(content[:8], "little")
            rest = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["wave"])
            candidates = no_candidates(len(arrays["verdict"]))
            for name in _NAMES:
                if name not in _ADDED or name in arrays:
                    candidates[name] = arrays[_STORED.get(name, name)]
            if "saved" not in arrays:
                candidates["saved"] = (candidates["verdict"] == KEPT) | (candidates["fault_types"] != 0)
            # Logs of golden campaigns tell a class even where the model gave NaN.
            candidates["prediction"][candidates["fault_types"] >> NOT_FINITE & 1 == 1] = -1
            return cls(
                wave=rest["wave"],
                candidates=candidates,
                inputs=np.array(arrays["inputs"]),
                comparisons=np.array(arrays["references"]),
                messages={int(row): said for row, said in rest["messages"].items()},
                limit=rest["limit"],
                seconds=rest["seconds"],
                base=rest.get("base"),
                observed=np.array(arrays["observed"]) if "observed" in arrays else None,
                unsaved=np.array(arrays["unsaved"]) if "unsaved" in arrays else None,
            )
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CampaignError(
                f"a pack of the log cannot be read ({error}): was it written by another version?"
            ) from error


# Mark, bytes of content, and their checksum.
_HEAD = struct.Struct("<4sQI")
_MARK = b"ncvw"
# No pack is as long as this.
_LONGEST = 1 << 40
_PIECE = 1 << 22


class Log:
    """Append packs to a file and read them, so that a kill at any moment costs at most the pack being written.

    A pack is a head (mark, length, checksum) and its content. One that ends behind the file's end, or whose checksum
    does not fit, is torn if no other pack follows; it is then left out and cut off by ``repair``. If one follows, the
    log was damaged otherwise, and reading it is an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        """How many bytes at the end the last reading left out: a pack that a kill tore, or that was damaged."""
        self._file: BinaryIO | None = None

    def append(self, content: bytes) -> None:
        """Commit a pack: one write, which a later kill of this process does not undo."""
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        pack = memoryview(_HEAD.pack(_MARK, len(content), zlib.crc32(content)) + content)
        while pack:
            pack = pack[self._file.write(pack) :]

    def sync(self) -> None:
        """Wait until the disk holds what was appended: a power cut does not undo it."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def repair(self) -> int:
        """Cut off a torn pack; return how many bytes that was."""
        for _ in self.read():
            pass
        if self.left_out:
            os.truncate(self.path, self.path.stat().st_size - self.left_out)
        return self.left_out

    def read(self) -> Iterator[bytes]:
        """Yield every complete pack. Leave out a torn one at the end; refuse damage in the middle."""
        self.left_out = 0
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
                        break
                    raise CampaignError(
                        f"{self.path}: damaged {size - start:,} bytes before its end; restore it from a copy"
                    )
                yield content
                start = end
        self.left_out = size - start

    def _pack_behind(self, start: int, size: int) -> bool:
        """Return whether another pack begins behind one that seems to be the last: then its length is damaged."""
        kept = b""
        with self.path.open("rb") as file:
            file.seek(start + 1)
            while left := size - file.tell():
                piece = file.read(min(left, _PIECE))
                if not piece:
                    return False  # cut short meanwhile
                content = kept + piece
                place = content.find(_MARK)
                while 0 <= place <= len(content) - _HEAD.size:
                    # The bytes of a picture may look like a mark, but hardly like a mark before a length.
                    if _HEAD.unpack_from(content, place)[1] < _LONGEST:
                        return True
                    place = content.find(_MARK, place + 1)
                kept = content[-_HEAD.size + 1 :]
        return False
