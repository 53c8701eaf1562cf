"""Which inputs a coverage has observed: runs, and a sketch by which two suites are seen to overlap.

An input is known by its 128-bit content key. A run keeps how many inputs it had and the sum of their keys, which is the
same in any order and in any batches. The sketch keeps the first words of the 4,096 smallest keys of all runs: of two
suites, those of the common inputs that are small enough are in both sketches, so that counting these tells how many
inputs are common; exactly up to 4,096 inputs, and with an error of a tenth or so for an overlap of one in a thousand
of a million.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations, activation_keys
from neuralcov.core.criterion import Criterion
from neuralcov.core.digests import splitmix64_words
from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Bool, Int
from neuralcov.coverage.excluded import ExcludedInputs
from neuralcov.coverage.sketch import SKETCH_SIZE, Sketch
from neuralcov.coverage.suite_counts import SuiteCounts

# Keys stay on the device until so many have come together, and activations without keys up to so many bytes.
_ROWS_AT_ONCE = 1 << 16
_BYTES_AT_ONCE = 1 << 23
_WORDS = 1 << 64


@dataclass(frozen=True)
class KeyRule:
    """Tell inputs apart by ``"plain"`` content keys, by ``"salted"`` ones, or by ``"none"``.

    A plain key tells whoever has an input whether it is among these. A salted key is that of a keyed hash, and tells
    only those who have the salt.
    """

    kind: str = "plain"
    salt: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, kind: str, salt: str | bytes | None) -> KeyRule:
        """Check what a user asked for."""
        if kind not in ("plain", "salted", "none"):
            raise InputError(f"keys={kind!r}: expected 'plain', 'salted' or 'none'")
        if (kind == "salted") != bool(salt):
            raise InputError(
                "keys='salted' needs a salt of your own: pass salt="
                if not salt
                else f"salt= goes with keys='salted', not with keys={kind!r}"
            )
        salt = salt.encode() if isinstance(salt, str) else salt or b""
        return cls(kind, hashlib.sha256(salt).digest() if salt else b"")

    @property
    def mark(self) -> str:
        """Return what keys of two coverages must have in common to be compared; says nothing of the salt itself."""
        if self.kind != "salted":
            return self.kind
        return "salted " + hashlib.blake2b(b"neuralcov", digest_size=8, key=self.salt).hexdigest()

    def words(self, keys: Int[Tensor, "inputs 2"]) -> np.ndarray:
        """Return keys as two unsigned words each, salted where that was asked for."""
        plain = keys.cpu().contiguous().numpy().view(np.uint64)
        if self.kind != "salted" or not len(plain):
            return plain
        hashed = [hashlib.blake2b(row.tobytes(), digest_size=16, key=self.salt).digest() for row in plain]
        return np.frombuffer(b"".join(hashed), dtype="<u8").reshape(-1, 2).astype(np.uint64)


@dataclass(frozen=True)
class Run:
    """Name inputs that were observed together: by one ``assess``, or by updates up to a save, a merge or a reset.

    ``id`` is the sum of their keys, ``None`` where these were not kept; ``first`` and ``last`` are seconds since 1970.
    """

    id: str | None
    inputs: int
    first: float | None = None
    last: float | None = None


@dataclass(frozen=True, eq=False)
class _Pending:
    """Hold one batch that is not in the sums yet; of its inputs only those ``taken`` count.

    On a CPU keys of many activations together take a fraction of the time: until then ``keys`` are the activations
    themselves, layers of these ``widths`` side by side.
    """

    size: int
    keys: Tensor | None
    widths: tuple[int, ...]
    taken: Tensor | None


class SeenInputs:
    """Remember which inputs one coverage has observed.

    Args:
        rule: how inputs are told apart.
    """

    def __init__(self, rule: KeyRule | None = None) -> None:
        self.rule = rule or KeyRule()
        self.mark = self.rule.mark
        """By what rule the keys here were made: those of a file by another than those to come, perhaps."""
        self.shared = 0
        """How many inputs were in two suites that were merged, about."""
        self.excluded = ExcludedInputs()
        """The names of the first inputs that criteria excluded."""
        self.counts = SuiteCounts()
        """Classes, right answers and inputs that behave alike."""
        self.reduced: int | None = None
        """How many inputs there were when the states of several processes were brought together, if they were."""
        self.offered = 0
        """How many inputs the run under way was given, those that were not taken included."""
        self._runs: tuple[Run, ...] = ()
        self._sketch = Sketch()
        self._pending: list[_Pending] = []
        self._rows = self._bytes = 0
        # A sum over all inputs of key and place, mixed; None where inputs came that have no place.
        self._order: int | None = 0
        self._placed = 0
        self._current = Run(None, 0)
        self._sums = (0, 0)

    def copy(self) -> Self:
        """Return a copy that goes its own way."""
        twin = type(self)(self.rule)
        twin.__dict__.update(self.__dict__)
        twin._pending = list(self._pending)
        twin.excluded, twin.counts = self.excluded.copy(), self.counts.copy()
        return twin

    def emptied(self) -> Self:
        """Return one that has seen nothing, by the same rule."""
        return type(self)(self.rule)

    def note(
        self,
        criteria: Sequence[Criterion[Any]],
        batch: Activations,
        taken: Bool[Tensor, "batch"] | None = None,
        *,
        finite: Bool[Tensor, "batch"] | None = None,
        keys: Int[Tensor, "batch 2"] | None = None,
        decisions: Int[Tensor, "batch"] | None = None,
        moments: Tensor | None = None,
        times: tuple[float, float] | None = None,
    ) -> None:
        """Note the inputs of a batch, all or those ``taken``, and which of them criteria excluded.

        A batch in memory that will be overwritten goes with copies of what is kept: which are finite, their keys and
        moments, and the classes that the model chose.
        """
        self.excluded.note(criteria, batch, self.offered, finite)
        self.counts.note(criteria, batch, taken, decisions, moments)
        self.add(batch if keys is None else replace(batch, keys=keys), taken, times)

    def add(
        self,
        batch: Activations,
        taken: Bool[Tensor, "batch"] | None = None,
        times: tuple[float, float] | None = None,
    ) -> None:
        """Note the inputs of a batch, or those ``taken`` of it, observed now or at ``times``, the first and the last.

        Nothing waits for the device.
        """
        begin, end = times or (time.time(),) * 2
        first = self._current.first
        self._current = replace(self._current, first=begin if first is None else first, last=end)
        keys, widths = _raw_keys(batch) if self.keeps_keys else (None, ())
        self._pending.append(_Pending(batch.size, keys, widths, taken))
        self.offered += batch.size
        self._rows += batch.size
        self._bytes += keys.nbytes if widths and keys is not None else 0
        if self._rows >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self._settle()

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return all runs, the one under way included."""
        self._settle()
        if not self._current.inputs:
            return self._runs
        return (*self._runs, self._now())

    @property
    def sketch(self) -> Sketch:
        """Return the first words of the smallest keys, and how often each came."""
        self._settle()
        return self._sketch

    @property
    def inputs(self) -> int:
        """Return how many inputs all runs had."""
        return sum(run.inputs for run in self.runs)

    @property
    def order(self) -> str | None:
        """Return a mark of the order of the inputs, whatever the batches; ``None`` where it is not known."""
        self._settle()
        return None if self._order is None or self._placed != self.inputs else f"{self._order:016x}"

    def end_run(self) -> None:
        """End the run under way: what comes now is another."""
        self._runs = self.runs
        self._current, self._sums, self.offered = Run(None, 0), (0, 0), 0

    def reopen_run(self) -> None:
        """Go on with the last run, as if it had not ended."""
        self.end_run()
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.id is not None) == self.keeps_keys:
            self._runs, self._current, self.offered = self._runs[:-1], replace(last, id=None), last.inputs
            self._sums = (0, 0) if last.id is None else (int(last.id[:16], 16), int(last.id[16:], 16))

    def restore(self, runs: Sequence[Run], sketch: Sketch, *, shared: int, mark: str) -> None:
        """Take over what a file holds."""
        self._runs, self._sketch, self.shared, self.mark = tuple(runs), sketch, shared, mark

    def unknown(self, inputs: int) -> Self:
        """Return one that has seen so many inputs, which nobody can tell."""
        seen = self.emptied()
        seen._runs = (Run(None, inputs),) if inputs else ()
        return seen

    def comparable(self, other: SeenInputs) -> bool:
        """Return whether the inputs of both can be told to be the same."""
        return self.mark == other.mark != "none"

    def common_runs(self, other: SeenInputs) -> tuple[Run, ...]:
        """Return the runs of ``other`` that are here as well."""
        if not self.comparable(other):
            return ()
        here = {(run.id, run.inputs) for run in self.runs if run.id is not None and run.inputs}
        return tuple(run for run in other.runs if (run.id, run.inputs) in here)

    def overlap(self, other: SeenInputs) -> float:
        """Estimate how many inputs are in both; 0 where keys cannot be compared.

        Below the largest word of a full sketch, that sketch has every key of its suite. Keys are as good as random, so
        that the share of all 64-bit words below the smaller of these ends is the share of inputs that were compared.
        """
        if not self.comparable(other):
            return 0.0
        sketches = (self.sketch.words, other.sketch.words)
        ends = [int(sketch[-1]) for sketch in sketches if len(sketch) == SKETCH_SIZE]
        end = min(ends, default=_WORDS - 1)
        common = np.intersect1d(*sketches, assume_unique=True)
        return float((common <= end).sum()) * _WORDS / (end + 1)

    def merge(self, other: SeenInputs) -> None:
        """Take in what another has seen; the runs under way of both end."""
        shared = round(self.overlap(other))
        self.end_run()
        other.end_run()
        if not self._runs:
            self.mark = other.mark
        if self.mark == other.mark:
            self._sketch = self._sketch.merge(other._sketch)
        self._runs += other._runs
        self._order = None
        self.excluded.merge(other.excluded)
        self.counts.merge(other.counts)
        self.shared += other.shared + shared

    def _now(self) -> Run:
        return replace(self._current, id="{:016x}{:016x}".format(*self._sums) if self.keeps_keys else None)

    def names_to_json(self) -> dict[str, Any]:
        """Return the names of excluded inputs as files keep them: none where keys are not to show which inputs."""
        excluded = self.excluded.to_json() if self.rule.kind == "plain" else {}
        return {"excluded": excluded} if excluded else {}

    @property
    def keeps_keys(self) -> bool:
        """Return whether content keys of inputs to come are kept."""
        return self.rule.kind != "none" and self.rule.mark == self.mark

    def _settle(self) -> None:
        """Put pending batches into sums and sketch; waits for the device."""
        if not self._pending:
            return
        self.counts.settle()
        pending, self._pending, self._rows, self._bytes = self._pending, [], 0, 0
        kept = [None if part.taken is None else part.taken.cpu().numpy() for part in pending]
        added = sum(part.size if rows is None else int(rows.sum()) for part, rows in zip(pending, kept, strict=True))
        self._current = replace(self._current, inputs=self._current.inputs + added)
        tensors = list(_finished(pending))
        if not tensors:
            return
        whole = torch.cat([tensor.to(tensors[0].device) for tensor in tensors]).cpu()
        if any(rows is not None for rows in kept):
            masks = [
                np.ones(part.size, dtype=bool) if rows is None else rows
                for part, rows in zip(pending, kept, strict=True)
            ]
            whole = whole[torch.from_numpy(np.concatenate(masks))]
        words = self.rule.words(whole)
        sums = words.sum(0, dtype=np.uint64)  # modulo 2⁶⁴
        self._sums = ((self._sums[0] + int(sums[0])) % _WORDS, (self._sums[1] + int(sums[1])) % _WORDS)
        self._sketch = self._sketch.add(words[:, 0])
        if self._order is not None:
            places = splitmix64_words(np.arange(self._placed, self._placed + len(words)))
            mixed = splitmix64_words(words[:, 0].view(np.int64) ^ places).view(np.uint64)
            self._order = (self._order + int(mixed.sum(dtype=np.uint64))) % _WORDS
            self._placed += len(words)


def _raw_keys(batch: Activations) -> tuple[Tensor, tuple[int, ...]]:
    """Return the keys of a batch, or on a CPU a copy of what they will be made of, with the widths of its layers."""
    layers = list(batch.layers.values())
    if batch.keys is not None or any(outputs.device.type != "cpu" for outputs in layers):
        return batch.content_keys, ()
    return torch.cat(layers, dim=1), tuple(outputs.shape[1] for outputs in layers)


def _finished(pending: Sequence[_Pending]) -> Iterator[Tensor]:
    """Yield the keys of pending batches; those of activations are made for many batches at once."""
    for widths, some in groupby(pending, key=lambda part: part.widths):
        keys = [part.keys for part in some if part.keys is not None]
        if widths:
            yield activation_keys(torch.split(torch.cat(keys), widths, dim=1))
        elif keys:
            yield torch.cat([part.to(keys[0].device) for part in keys])
