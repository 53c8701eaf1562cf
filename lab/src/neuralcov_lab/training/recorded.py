"""A training step recorded once as a CUDA graph and replayed: small kernels no longer wait for Python to start them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Ordinary steps before one is recorded: memory and the fastest convolutions are found, optimisers get their state.
_ORDINARY = 4


class RecordedStep:
    """A function of row numbers that trains and returns a loss, replayed as a CUDA graph after a few calls.

    Everything the function does must be the same each time but for the rows, random numbers and what lies in tensors,
    learning rates included. On a CPU, and for batches of another size, the function itself is called.
    """

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self._step = step
        self._calls = 0
        self._rows: Tensor | None = None
        self._loss: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """One step; the loss is overwritten by the next."""
        if rows.device.type != "cuda" or (self._rows is not None and rows.shape != self._rows.shape):
            return self._step(rows)
        if self._graph is None:
            if self._calls < _ORDINARY:
                self._calls += 1
                return self._beside(rows)
            self._record(rows)
        assert self._rows is not None
        assert self._graph is not None
        assert self._loss is not None
        self._rows.copy_(rows)
        self._graph.replay()
        return self._loss

    def _beside(self, rows: Tensor) -> Tensor:
        """An ordinary step on a stream of its own, where recording asks for it to have happened."""
        stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            loss = self._step(rows)
        current.wait_stream(stream)
        return loss

    def _record(self, rows: Tensor) -> None:
        """Recording runs nothing: the step itself happens when the graph is replayed."""
        self._rows = rows.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._loss = self._step(self._rows)
        self._graph = graph
