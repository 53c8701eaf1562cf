"""Run the model in batches, isolate inputs that break it, and stop it when it takes too long."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CampaignError, NeuralcovError
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.formats import InputFormat

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """The model gave no result for one input."""

    timed_out: bool
    message: str


@dataclass(frozen=True, eq=False)
class RunResult:
    """What the model gave for the inputs it gave something for.

    ``rows`` are their numbers among the inputs, on the host. ``finite`` and the rest stay on the device.
    ``outputs`` are the model's outputs as ``(rows, output)`` pieces, where they were asked for.
    """

    rows: np.ndarray
    activations: Activations | None
    finite: Tensor
    outputs: list[tuple[slice, Any]]
    failures: dict[int, Failure]

    @property
    def predictions(self) -> Tensor | None:
        """Predicted classes, −1 where numbers are not finite: the largest of NaN is no class."""
        found = None if self.activations is None else self.activations.predictions
        return None if found is None else found.masked_fill(~self.finite.to(found.device), -1)


@dataclass(frozen=True, eq=False)
class ModelRunner:
    """Runs the model of a coverage.

    Args:
        coverage: holds the model.
        space: where inputs live.
        preprocess: from opened inputs to what the model takes.
        batch: the most inputs per run.
        limit: seconds per run.
        classes: whether to read off predicted classes.
        keep_outputs: whether somebody wants the outputs themselves.
    """

    coverage: Coverage
    space: InputFormat
    preprocess: Callable[[Tensor], Any]
    batch: int
    limit: float | None = None
    classes: bool = True
    keep_outputs: bool = False

    def run(self, inputs: Tensor, labels: Tensor | None) -> RunResult:
        """Run the model on stored inputs."""

        def once(rows: slice) -> tuple[Activations, Any]:
            ready = self.preprocess(self.space.decode(inputs[rows]))
            part = None if labels is None else labels[rows]
            return self.coverage.run(ready, part, predictions=self.classes)

        parts, failures = in_halves(once, len(inputs), self.batch, self.limit, inputs.device)
        rows = np.concatenate([np.arange(part.start, part.stop) for part, _ in parts] or [np.arange(0)])
        if not parts:
            nothing = torch.ones(0, dtype=torch.bool, device=inputs.device)
            return RunResult(rows, None, nothing, [], failures)
        finite = torch.cat([finite_rows(output, part.stop - part.start) for part, (_, output) in parts])
        activations = without(Activations.cat([activations for _, (activations, _) in parts]), ~finite)
        outputs = [(part, output) for part, (_, output) in parts] if self.keep_outputs else []
        return RunResult(rows, activations, activations.finite, outputs, failures)


def in_halves(
    function: Callable[[slice], T], count: int, batch: int, limit: float | None, device: torch.device
) -> tuple[list[tuple[slice, T]], dict[int, Failure]]:
    """A function over rows 0 … count − 1 in batches; one in which it fails is halved until a single row is left."""
    done: list[tuple[slice, T]] = []
    failures: dict[int, Failure] = {}
    waiting = [slice(start, min(start + batch, count)) for start in range(0, count, batch)][::-1]
    while waiting:
        rows = waiting.pop()
        try:
            with time_limit(limit, device):
                done.append((rows, function(rows)))
        except NeuralcovError:
            raise
        except torch.OutOfMemoryError as error:
            raise CampaignError(
                f"out of memory with {rows.stop - rows.start} inputs at once: set batch= (or --batch) lower, and wave= "
                "too if that does not help"
            ) from error
        except Exception as error:
            if rows.stop - rows.start == 1:
                failures[rows.start] = Failure(isinstance(error, TimeUp), f"{type(error).__name__}: {error}"[:500])
                continue
            middle = (rows.start + rows.stop) // 2
            waiting += [slice(middle, rows.stop), slice(rows.start, middle)]
    return done, failures


def without(activations: Activations, rows: Tensor) -> Activations:
    """Activations of which some inputs take part in nothing, as if an output of theirs were NaN.

    Nothing waits for the device: which inputs these are is not asked.
    """
    # A layer that every input has, or at least the first step of a recurrent one.
    everywhere = (name for name in reversed(list(activations.layers)) if name not in activations.present)
    name = next(everywhere, next(iter(activations.layers)))
    outputs = activations.layers[name]
    marked = outputs.masked_fill(rows.to(outputs.device)[:, None], torch.nan)
    return replace(activations, layers={**activations.layers, name: marked})


def finite_rows(output: Any, size: int) -> Tensor:
    """Whether every number that belongs to an input is finite, ``(size,)``."""
    tensors = [tensor for tensor in tensors_in(output) if tensor.dim() and tensor.shape[0] == size]
    checks = [torch.isfinite(tensor).reshape(size, -1).all(1) for tensor in tensors if tensor.is_floating_point()]
    if not checks:
        return torch.ones(size, dtype=torch.bool)
    return torch.stack([check.to(checks[0].device) for check in checks]).all(0)


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor of an output, depth first."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors_in(part)]
    logits = getattr(value, "logits", None)
    return [logits] if isinstance(logits, Tensor) else []


def take_rows(value: Any, rows: Tensor, size: int) -> Any:
    """The same output for some of the inputs."""
    if isinstance(value, Tensor):
        return value[rows.to(value.device)] if value.dim() and value.shape[0] == size else value
    if isinstance(value, Mapping):
        return {name: take_rows(part, rows, size) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(take_rows(part, rows, size) for part in value)
    logits = getattr(value, "logits", None)
    return take_rows(logits, rows, size) if isinstance(logits, Tensor) else value


class TimeUp(Exception):
    """A call took longer than it was given."""


@contextmanager
def time_limit(seconds: float | None, device: torch.device) -> Iterator[None]:
    """Within: at most so many seconds, or :class:`TimeUp`.

    In the main thread of a Unix process a call is interrupted as soon as Python code runs in it. Elsewhere, and
    within one long operation of PyTorch, it is noticed at the end.
    """
    if seconds is None:
        yield
        return
    started = time.monotonic()
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    with _alarm(seconds) if alarmed else _nothing():
        yield
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    if time.monotonic() - started > seconds:
        raise TimeUp(f"took longer than {seconds:g} s")


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeUp(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
