"""Training traces once more on disk, ordered by class, so that those of one class are read in one piece."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.shapes import Float, Int
from neuralcov.core.traces import Traces


class ClassFile:
    """A temporary file that goes when nothing refers to it any more; as large as the traces themselves.

    Training data mostly comes shuffled, so that the traces of a class are scattered all over the store. Fetching them
    there one by one is what disks are slowest at.

    Args:
        traces: the store, larger than its budget.
        members: row numbers of each class, rising.
    """

    def __init__(self, traces: Traces, members: Mapping[int, Int[Tensor, "_"]]) -> None:
        self._device = traces.device
        order = torch.cat(list(members.values()))
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        with tempfile.TemporaryFile(prefix="neuralcov-classes-") as file:
            start = 0
            for block in traces.blocks:
                _write(file.fileno(), block.to(traces.dtype), place[start : start + len(block)])
                start += len(block)
            kind = np.float64 if traces.dtype == torch.float64 else np.float32
            rows = np.memmap(file, dtype=kind, mode="r+", shape=(len(order), traces.width))
        self._rows = torch.from_numpy(rows)
        ends = torch.tensor([len(rows) for rows in members.values()]).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        self._where = {label: slice(*pair) for label, pair in zip(members, zip(starts, ends, strict=True), strict=True)}

    def of_class(self, label: int) -> Float[Tensor, "members width"]:
        """The traces of one class, on the device."""
        return self._rows[self._where[label]].to(self._device)


def _write(file: int, block: Tensor, place: Tensor) -> None:
    """Put the rows of a block to their places, those that come to lie together in one piece."""
    order = place.argsort()
    rows, places = block[order.to(block.device)].cpu().numpy(), place[order].numpy()
    row_bytes = rows.shape[1] * rows.itemsize
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    for first, last in zip([0, *breaks], [*breaks, len(places)], strict=True):
        piece, offset = rows[first:last].data.cast("B"), int(places[first]) * row_bytes
        while piece:
            written = os.pwrite(file, piece, offset)
            piece, offset = piece[written:], offset + written
