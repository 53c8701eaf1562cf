"""Running the model on candidates: in batches, and where it throws or hangs, in halves until the culprit is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.errors import CampaignError, NeuralcovError
from neuralcov.coverage import Coverage
from neuralcov.fuzz.space import Space
from neuralcov.fuzz.timeouts import TimeUp, time_limit

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """The model gave no result for one input."""

    timed_out: bool
    message: str


@dataclass(frozen=True, eq=False)
class Ran:
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
class Runner:
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
    space: Space
    preprocess: Callable[[Tensor], Any]
    batch: int
    limit: float | None = None
    classes: bool = True
    keep_outputs: bool = False

    def run(self, inputs: Tensor, labels: Tensor | None) -> Ran:
        """Run the model on stored inputs."""

        def once(rows: slice) -> tuple[Activations, Any]:
            ready = self.preprocess(self.space.open(inputs[rows]))
            part = None if labels is None else labels[rows]
            return self.coverage.run(ready, part, predictions=self.classes)

        parts, failures = in_halves(once, len(inputs), self.batch, self.limit, inputs.device)
        rows = np.concatenate([np.arange(part.start, part.stop) for part, _ in parts] or [np.arange(0)])
        if not parts:
            nothing = torch.ones(0, dtype=torch.bool, device=inputs.device)
            return Ran(rows, None, nothing, [], failures)
        finite = torch.cat([finite_rows(output, part.stop - part.start) for part, (_, output) in parts])
        activations = without(Activations.cat([activations for _, (activations, _) in parts]), ~finite)
        outputs = [(part, output) for part, (_, output) in parts] if self.keep_outputs else []
        return Ran(rows, activations, activations.finite, outputs, failures)


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
