"""Small, awkward batches on which the laws are tried: ties, constant layers, zeros, wild scales, absent steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.activations import Activations
from neuralcov.core.criterion import Criterion, State
from neuralcov.core.records import flatten, map_tensors
from neuralcov.statistics.calibration import Calibration

CLASSES = 3
FLAVOURS = ("smooth", "ties", "rectified", "scaled", "constant")


@dataclass(frozen=True)
class LawCase:
    """A calibrated criterion, a suite to observe and further inputs to judge."""

    criterion: Criterion[Any]
    training: Activations
    suite: Activations
    candidates: Activations


def random_case(criterion: Criterion[Any], number: int) -> LawCase:
    """Return the case of a number for ``criterion``, the same whenever it is asked for."""
    draw = random.Random(number)
    widths = [draw.randint(1, 6) for _ in range(draw.randint(1, 3))]
    sizes = draw.randint(8, 30), draw.randint(1, 14), draw.randint(1, 5)
    return make_case(criterion, widths, FLAVOURS[number % len(FLAVOURS)], number, sizes, padded=draw.random() < 0.5)


def make_case(
    criterion: Criterion[Any], widths: list[int], flavour: str, seed: int, sizes: tuple[int, int, int], *, padded: bool
) -> LawCase:
    """Return a case for ``criterion``, calibrated on data of the same kind as the suite.

    Args:
        criterion: uncalibrated.
        widths: of the layers.
        flavour: one of ``FLAVOURS``.
        seed: of all numbers.
        sizes: of training data, suite and candidates.
        padded: whether some inputs of the suite lack a layer.
    """
    generator = torch.Generator().manual_seed(seed)
    spreads = (1.0, 1.3, 1.6)
    training, suite, candidates = (
        random_batch(generator, widths, size, flavour, spread) for size, spread in zip(sizes, spreads, strict=True)
    )
    if padded:
        suite = _with_absent_steps(suite, generator)
    return LawCase(calibrated(criterion, training), training, suite, candidates)


def calibrated(criterion: Criterion[Any], training: Activations) -> Criterion[Any]:
    """Return the criterion after calibration on one batch, if it learns at all."""
    if not criterion.learns:
        return criterion
    return criterion.calibrate(Calibration.empty(training.layout, [criterion]).observe(training).finished())


def random_batch(
    generator: torch.Generator, widths: list[int], size: int, flavour: str, spread: float = 1.0
) -> Activations:
    """Return a batch of one flavour. Every class occurs once there are enough inputs."""
    layers = {}
    for index, width in enumerate(widths):
        values = spread * torch.randn(size, width, generator=generator)
        layers[f"layer{index}"] = _flavoured(values, flavour, last=index == len(widths) - 1)
    classes = torch.arange(size) % CLASSES
    labels, predictions = (classes[torch.randperm(size, generator=generator)] for _ in range(2))
    # Training data of which nothing is classified correctly teaches no path.
    predictions[:1] = labels[:1]
    return Activations(
        layers=layers,
        labels=labels,
        predictions=predictions,
        relevance={name: torch.rand(values.shape, generator=generator) - 0.2 for name, values in layers.items()},
    )


def moved(batch: Activations, device: torch.device | str, dtype: torch.dtype | None = None) -> Activations:
    """Return the same batch on another device or in another floating type."""

    def every(tensors: Any, to: torch.dtype | None) -> dict[str, Tensor]:
        return {name: tensor.to(device, to) for name, tensor in tensors.items()}

    return Activations(
        layers=every(batch.layers, dtype),
        labels=None if batch.labels is None else batch.labels.to(device),
        predictions=None if batch.predictions is None else batch.predictions.to(device),
        relevance=None if batch.relevance is None else every(batch.relevance, dtype),
        present=every(batch.present, None),
    )


def _flavoured(values: Tensor, flavour: str, *, last: bool) -> Tensor:
    if flavour == "ties":
        return values.mul(2).round()
    if flavour == "rectified":
        return values.relu()
    if flavour == "scaled":
        return values * 1e4 + 3e4 if last else values * 1e-3
    if flavour == "constant" and last:
        return torch.full_like(values, 0.25)
    return values


def _with_absent_steps(batch: Activations, generator: torch.Generator) -> Activations:
    name = list(batch.layers)[-1]
    there = torch.rand(batch.size, generator=generator) < 0.7
    outputs = batch.layers[name].masked_fill(~there[:, None], 0)
    return Activations(
        layers={**batch.layers, name: outputs},
        labels=batch.labels,
        predictions=batch.predictions,
        relevance=batch.relevance,
        present={name: there},
    )


def with_not_finite(batch: Activations, *, every: int) -> Activations:
    """Give every so many-th input of a batch, from the first on, an output that is NaN or infinite."""
    name = next(iter(batch.layers))
    outputs = batch.layers[name].clone()
    broken = torch.tensor([torch.nan, torch.inf, -torch.inf]).repeat(batch.size)[: len(outputs[::every])]
    outputs[::every, 0] = broken.to(outputs)
    # An output that is absent would not count.
    present = {layer: there for layer, there in batch.present.items() if layer != name}
    return replace(batch, layers={**batch.layers, name: outputs}, present=present)


def of_unknown_classes(batch: Activations) -> Activations:
    """Give the inputs of a batch labels out of range, and predictions that calibration has not seen."""
    assert batch.labels is not None
    assert batch.predictions is not None
    return replace(batch, labels=batch.labels - 3 * CLASSES, predictions=batch.predictions + 3 * CLASSES)


def same(found: Tensor, expected: Tensor, what: str, scale: float = 0.0) -> None:
    """Check equality to nine figures, or within 1e-11 of the size of the numbers they were computed from."""
    tolerance = 1e-9 * expected.abs() + 1e-11 * max(1.0, scale)
    assert bool(((found - expected).abs() <= tolerance).all()), (
        f"{what}: {found.tolist()}, expected {expected.tolist()}"
    )


def copied(state: State) -> State:
    """Copy a state with all its tensors."""
    return map_tensors(torch.clone, state)


def unchanged(state: State, kept: State, complaint: str) -> None:
    """Check that a state equals an earlier copy of it to the bit."""
    now: dict[str, Tensor] = {}
    then: dict[str, Tensor] = {}
    assert flatten(state, "", now) == flatten(kept, "", then), complaint
    for path, tensor in then.items():
        assert equal_bits(now[path], tensor), f"{complaint} ({path})"


def equal_bits(one: Tensor, other: Tensor) -> bool:
    """Compare two tensors to the bit, so that NaN equals itself and −0 differs from 0."""
    return (one.dtype, one.shape) == (other.dtype, other.shape) and torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
