"""Run the model in batches, isolate inputs that break it, and stop it when it takes too long."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CampaignError, CoverageWarning, InputError, NeuralcovError
from neuralcov.core.memory import out_of_memory
from neuralcov.core.trees import cat_rows, finite_rows, plain_output, take_rows
from neuralcov.coverage.coverage import Coverage
from neuralcov.fuzz.formats import InputFormat
from neuralcov.tap.probabilities import margins

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """Say why the model gave no result for one input."""

    timed_out: bool
    message: str


@dataclass(frozen=True, eq=False)
class RunResult:
    """Hold what the model gave for the inputs it gave something for.

    ``rows`` are their numbers among the inputs, on the host. ``finite`` and the rest stay on the device.
    ``outputs`` are the model's outputs as ``(rows, output)`` pieces, where they were asked for; ``margins`` are
    ``(batch,)`` each, of the right class over its rival, and the rival.
    """

    rows: np.ndarray
    activations: Activations | None
    finite: Tensor
    outputs: list[tuple[slice, Any]]
    failures: dict[int, Failure]
    margins: tuple[Tensor, Tensor] | None = None

    @property
    def predictions(self) -> Tensor | None:
        """Return predicted classes, −1 where numbers are not finite: the largest of NaN is no class."""
        found = None if self.activations is None else self.activations.predictions
        return None if found is None else found.masked_fill(~self.finite.to(found.device), -1)

    def outputs_of(self, rows: np.ndarray) -> Any:
        """Return the outputs of some inputs as one; inputs without a result repeat the first."""
        if not self.outputs:
            return None
        sizes = [part.stop - part.start for part, _ in self.outputs]
        whole = cat_rows([output for _, output in self.outputs], sizes)
        place = {int(row): index for index, row in enumerate(self.rows)}
        order = torch.tensor([place.get(int(row), 0) for row in rows], dtype=torch.int64)
        return take_rows(whole, order, len(self.rows))


@dataclass(frozen=True, eq=False)
class ModelRunner:
    """Run the model of a coverage.

    Args:
        coverage: holds the model.
        input_format: how inputs are stored.
        preprocess: from decoded inputs to what the model takes.
        batch: the most inputs per run.
        limit: seconds per run.
        classes: whether to read off predicted classes.
        keep_outputs: whether somebody wants the outputs themselves.
        needs_margins: whether an output without a score per class is an error; else its margins are unknown.
    """

    coverage: Coverage
    input_format: InputFormat
    preprocess: Callable[[Tensor], Any]
    batch: int
    limit: float | None = None
    classes: bool = True
    keep_outputs: bool = False
    needs_margins: bool = True

    def run(self, inputs: Tensor, labels: Tensor | None, targets: Tensor | None = None) -> RunResult:
        """Run the model on stored inputs.

        Args:
            inputs: as they are stored.
            labels: for criteria that want them.
            targets: the classes to read margins of; none are read without.
        """

        def once(rows: slice) -> tuple[Activations, Any, tuple[Tensor, Tensor] | None]:
            ready = self.preprocess(self.input_format.decode(inputs[rows]))
            part = None if labels is None else labels[rows]
            activations, output = self.coverage.run(ready, part, predictions=self.classes)
            read = None if targets is None else self._margins(output, targets[rows])
            return activations, plain_output(output), read

        parts, failures = in_halves(once, len(inputs), self.batch, self.limit, inputs.device)
        rows = np.concatenate([np.arange(part.start, part.stop) for part, _ in parts] or [np.arange(0)])
        if not parts:
            nothing = torch.ones(0, dtype=torch.bool, device=inputs.device)
            return RunResult(rows, None, nothing, [], failures)
        finite = torch.cat([finite_rows(output, part.stop - part.start) for part, (_, output, _) in parts])
        # What the model gave no numbers for takes part in nothing, though its layers may have been finite.
        activations = replace(Activations.cat([activations for _, (activations, _, _) in parts]), valid=finite)
        outputs = [(part, output) for part, (_, output, _) in parts] if self.keep_outputs else []
        found = [pair for _, (_, _, pair) in parts if pair is not None]
        read = (torch.cat([pair[0] for pair in found]), torch.cat([pair[1] for pair in found])) if found else None
        return RunResult(rows, activations, activations.finite, outputs, failures, read)

    def _margins(self, output: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        found = margins(output, targets)
        if found is None and self.needs_margins:
            raise InputError(
                "the guide reads how sure the model is, and its output has no score per class: expected (batch, "
                "classes); choose guide='coverage', or give a model that returns scores"
            )
        if found is None:
            return targets.new_full(targets.shape, torch.nan, dtype=torch.float64), torch.full_like(targets, -1)
        return found


def in_halves(
    function: Callable[[slice], T], count: int, batch: int, limit: float | None, device: torch.device
) -> tuple[list[tuple[slice, T]], dict[int, Failure]]:
    """Call a function on rows 0 … count − 1 in batches; return its results in order, and failures by row.

    A batch in which the function throws or takes too long is halved until single rows are left, which are the
    failures: one bad row in a batch of b costs about 2 log₂ b calls more, and no other row is lost. A batch for which
    memory does not suffice is halved too, with a warning; a single row for which it does not is no failure of the
    model, and ends the campaign.
    """
    done: list[tuple[slice, T]] = []
    failures: dict[int, Failure] = {}
    waiting = _cut(slice(0, count), batch)[::-1]
    while waiting:
        rows = waiting.pop()
        try:
            with time_limit(limit, device):
                done.append((rows, function(rows)))
        except NeuralcovError:
            raise
        except Exception as error:
            short = out_of_memory(error)
            if short and rows.stop - rows.start == 1:
                raise CampaignError(
                    "out of memory with a single input: free some, use another device, or set wave= lower"
                ) from error
            if short:
                warnings.warn(
                    f"out of memory with {rows.stop - rows.start} inputs at once: went on with half of them; a lower "
                    "batch= (or --batch) saves the attempts",
                    CoverageWarning,
                    stacklevel=2,
                )
                batch = (rows.stop - rows.start + 1) // 2
                waiting = [part for other in waiting for part in _cut(other, batch)[::-1]]
            if rows.stop - rows.start == 1:
                failures[rows.start] = Failure(isinstance(error, TimeUp), f"{type(error).__name__}: {error}"[:500])
                continue
            middle = (rows.start + rows.stop) // 2
            waiting += [slice(middle, rows.stop), slice(rows.start, middle)]
    return done, failures


def _cut(rows: slice, most: int) -> list[slice]:
    return [slice(start, min(start + most, rows.stop)) for start in range(rows.start, rows.stop, most)]


class TimeUp(Exception):
    """Say that a call took longer than it was given."""


@contextmanager
def time_limit(seconds: float | None, device: torch.device) -> Iterator[None]:
    """Raise ``TimeUp`` in a block that takes longer than so many seconds.

    In the main thread of a Unix process a call is interrupted as soon as Python code runs in it. Elsewhere, and
    within one long operation of PyTorch, it is noticed at the end.
    """
    if seconds is None:
        yield
        return
    started = time.monotonic()
    alarmed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    with _alarm(seconds) if alarmed else nullcontext():
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
