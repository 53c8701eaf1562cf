"""Training traces as a surprise criterion sees them: chosen layers, varying neurons, rows by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CalibrationError
from neuralcov.core.shapes import Float, Int
from neuralcov.core.spill import reserved
from neuralcov.statistics.traces import TraceStore, trace_of


class TracesByClass:
    """A temporary file that goes when nothing refers to it any more; as large as the traces themselves.

    Training data mostly comes shuffled, so that the traces of a class are scattered all over the store. Fetching them
    there one by one is what disks are slowest at.

    Args:
        traces: the store, larger than its budget.
        members: row numbers of each class, rising.
    """

    def __init__(self, traces: TraceStore, members: Mapping[int, Int[Tensor, "_"]]) -> None:
        self._device = traces.device
        order = torch.cat(list(members.values()))
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        kind = np.float64 if traces.dtype == torch.float64 else np.float32
        rows = reserved((len(order), traces.width), kind, "classes")
        start = 0
        for block in traces.blocks:
            _write(rows, block.to(traces.dtype), place[start : start + len(block)])
            start += len(block)
        self._rows = torch.from_numpy(rows)
        ends = torch.tensor([len(rows) for rows in members.values()]).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        self._where = {label: slice(*pair) for label, pair in zip(members, zip(starts, ends, strict=True), strict=True)}

    def of_class(self, label: int) -> Float[Tensor, "members width"]:
        """Return the traces of one class, on the device."""
        return self._rows[self._where[label]].to(self._device)


def _write(into: np.ndarray, block: Tensor, place: Tensor) -> None:
    """Put the rows of a block to their places, those that come to lie together in one piece."""
    order = place.argsort()
    rows, places = block[order.to(block.device)].cpu().numpy(), place[order].numpy()
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    for first, last in zip([0, *breaks], [*breaks, len(places)], strict=True):
        into[places[first] : places[first] + last - first] = rows[first:last]


EVERYONE = 0


class ClassTraces:
    """A view of shared traces for one way of conditioning.

    Args:
        traces: the store, shared by all criteria.
        names: the layers that make a trace here, of those the store holds.
        widths: neurons of the layers the store holds.
        by: ``"predicted"``, ``"label"`` or ``None``.
        min_variance: neurons whose variance over all training data is below it are left out.
    """

    def __init__(
        self,
        traces: TraceStore,
        names: Sequence[str],
        widths: Sequence[int],
        by: str | None,
        min_variance: float,
    ) -> None:
        self.traces, self.names, self.by, self._min_variance = traces, tuple(names), by, min_variance
        self.device = torch.device(traces.device)
        self._columns = self._choose_columns(widths, min_variance)
        self.classes = self._classes()

    @property
    def dtype(self) -> torch.dtype:
        """Return the type that holds every training trace."""
        return self.traces.dtype

    @property
    def width(self) -> int:
        """Return the neurons of a trace."""
        return self.traces.width if self._columns is None else len(self._columns)

    @cached_property
    def members(self) -> dict[int, Int[Tensor, "_"]]:
        """Return the row numbers of each class, rising."""
        order = self.classes.argsort(stable=True)
        present, counts = torch.unique_consecutive(self.classes[order], return_counts=True)
        parts = torch.split(order, counts.tolist())
        return dict(zip(present.tolist(), parts, strict=True))

    def of_class(self, label: int) -> Float[Tensor, "members width"]:
        """Return the traces of one class.

        Kept for further use where a second copy of all traces is within the budget; from a file ordered by class where
        not even the first is.
        """
        size = sum(block.nbytes for block in self.traces.blocks)
        if size > self.traces.budget:
            return self._narrowed(self._class_file().of_class(label))
        if 2 * size > self.traces.budget:
            return self.rows(self.members[label])
        kept = _kept_classes.setdefault(self.traces, {})
        key = (self.names, self.by, self._min_variance, label)
        if key not in kept:
            kept[key] = self.rows(self.members[label])
        return kept[key]

    def rows(self, wanted: Int[Tensor, "some"]) -> Float[Tensor, "some width"]:
        """Return traces by rising row number."""
        return self._narrowed(self.traces.rows(wanted))

    def stream(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield all traces, block by block."""
        for rows, block in self.traces.stream():
            yield rows, self._narrowed(block)

    def of_batch(self, batch: Activations) -> Float[Tensor, "batch width"]:
        """Return the traces of a batch."""
        if self._columns is None:
            return trace_of(batch, self.names)
        return trace_of(batch, self.traces.names)[:, self._columns]

    def conditions(self, batch: Activations) -> Int[Tensor, "batch"]:
        """Return the class that each input of a batch is compared within, on the CPU."""
        if self.by is None:
            return torch.full((batch.size,), EVERYONE)
        classes = batch.predictions if self.by == "predicted" else batch.labels
        assert classes is not None
        # Fetched once for all criteria: each time, the device is waited for.
        return batch.shared(("classes on the host", self.by), classes.cpu)

    def _classes(self) -> Tensor:
        if self.by is None:
            return torch.full((len(self.traces),), EVERYONE)
        classes = self.traces.predictions if self.by == "predicted" else self.traces.labels
        if classes is None:
            what = "predictions" if self.by == "predicted" else "labels"
            raise CalibrationError(f"by={self.by!r} needs {what} with the training data: calibrate with {what}")
        return classes

    def _choose_columns(self, widths: Sequence[int], min_variance: float) -> Tensor | None:
        """Return the columns that take part, or ``None`` for all of them."""
        chosen = [n in self.names for n, width in zip(self.traces.names, widths, strict=True) for _ in range(width)]
        variances = _kept_variances.get(self.traces)
        if variances is None:
            variances = _kept_variances[self.traces] = _variances(self.traces)
        # A variance beyond float64 is NaN or infinite, and not below anything.
        taking_part = torch.tensor(chosen, device=self.device) & ~(variances.to(self.device) < min_variance)
        if not bool(taking_part.any()):
            raise CalibrationError(
                f"no neuron of {', '.join(self.names)} varies by min_variance={min_variance:g} over the training data"
            )
        return None if bool(taking_part.all()) else taking_part.nonzero()[:, 0]

    def _class_file(self) -> TracesByClass:
        files = _kept_files.setdefault(self.traces, {})
        if self.by not in files:
            files[self.by] = TracesByClass(self.traces, self.members)
        return files[self.by]

    def _narrowed(self, rows: Tensor) -> Tensor:
        return rows if self._columns is None else rows[:, self._columns]


# Criteria that share a store share these too.
_kept_variances: WeakKeyDictionary[TraceStore, Tensor] = WeakKeyDictionary()
_kept_classes: WeakKeyDictionary[TraceStore, dict[tuple[Any, ...], Tensor]] = WeakKeyDictionary()
_kept_files: WeakKeyDictionary[TraceStore, dict[str | None, TracesByClass]] = WeakKeyDictionary()


def _variances(traces: TraceStore) -> Float[Tensor, "width"]:
    """Return the variance of every neuron over all training data, divided by n."""
    if not len(traces):
        raise CalibrationError("calibration saw no input whose outputs are finite")
    count = 0
    mean, scatter = (torch.zeros(traces.width, dtype=torch.float64, device=traces.device) for _ in range(2))
    for _, block in traces.stream():
        for part in torch.split(block, 4096):
            rows = part.double()
            here = rows.mean(0)
            total = count + len(rows)
            apart = here - mean
            scatter = scatter + (rows - here).square().sum(0) + apart.square() * (count * len(rows) / total)
            mean = mean + apart * (len(rows) / total)
            count = total
    return scatter / count
