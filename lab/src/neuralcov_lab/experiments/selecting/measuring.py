"""Measure the inputs of a test set once: every score, what each input covers, and the orders that need all features.

What is found lies in the data cache, under ``select``, so that networks run on one machine and pools can be judged on
another: every figure of the pages follows from these files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

import neuralcov as nc
from neuralcov.core.files import atomic_write
from neuralcov.rank.collecting import Settings, gather
from neuralcov.rank.given import last_before_output
from neuralcov.rank.scorers import MOST_TRACES
from neuralcov.rank.trust import ClassNeighbours
from neuralcov.sources.samples import Samples
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.subjects import ProofSubject, proof_subject
from neuralcov_lab.experiments.measuring import quiet
from neuralcov_lab.experiments.selecting.fast import fast_logits
from neuralcov_lab.experiments.selecting.published import PUBLISHED, published_subject
from neuralcov_lab.experiments.selecting.searches import (
    additional_cells,
    facility_location,
    farthest_first,
    geometric_diversity,
)
from neuralcov_lab.experiments.selecting.shifts import STRENGTHS, shifted
from neuralcov_lab.fetching.cache import cache_folder

COVERING = (nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10))
# Features are kept along so many directions of most variance in training.
KEPT = 16
_VERSION = 1
_HEAD = "head"


@dataclass(frozen=True, eq=False)
class Measured:
    """Hold what is known of a test set.

    Args:
        columns: numbers of every input, by name.
        orders: places within each of some pools, by method: ``(pools, half)``.
    """

    columns: dict[str, np.ndarray]
    orders: dict[str, np.ndarray]


def pool_rows(context: ExperimentContext, count: int, strength: int, number: int) -> np.ndarray:
    """Return the rows of a random half of a test set."""
    found: np.ndarray = np.sort(context.rows(count, count // 2, 223, strength, number).cpu().numpy())
    return found


def subject_of(context: ExperimentContext, name: str) -> ProofSubject:
    """Return a subject by name, ours or a published one."""
    return published_subject(context, name) if name in PUBLISHED else proof_subject(context, name)


def measured(context: ExperimentContext, name: str, searched: int) -> dict[str, Measured]:
    """Return what is known of every test set of a subject, from the cache where it lies there."""
    paths = {shift: _path(context, name, shift, searched) for shift in STRENGTHS}
    if not all(path.is_file() for path in paths.values()):
        with quiet():
            meter = _Meter(context, subject_of(context, name))
            for shift, path in paths.items():
                if not path.is_file():
                    _write(path, meter.measure(STRENGTHS[shift], searched))
    return {shift: _read(path) for shift, path in paths.items()}


def _path(context: ExperimentContext, name: str, shift: str, searched: int) -> Path:
    scale = context.scale
    numbers = (_VERSION, scale.training, scale.test, searched, context.seed)
    return cache_folder() / "select" / f"{name}.{shift.replace(' ', '-')}.{'-'.join(map(str, numbers))}.npz"


def _write(path: Path, found: Measured) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {f"columns/{name}": array for name, array in found.columns.items()}
    arrays |= {f"orders/{name}": array for name, array in found.orders.items()}
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def _read(path: Path) -> Measured:
    parts: dict[str, dict[str, np.ndarray]] = {"columns": {}, "orders": {}}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            kind, _, own = name.partition("/")
            parts[kind][own] = file[name]
    return Measured(parts["columns"], parts["orders"])


class Head:
    """Know the last linear layer of a network, and hold what it was given last."""

    def __init__(self, model: nn.Module) -> None:
        self.layer = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        self.given: Tensor | None = None
        self.layer.register_forward_pre_hook(self._take)

    def _take(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.given = inputs[0].detach()

    def take(self, count: int) -> Tensor:
        """Return the features of the batch that was run last, a row for each input."""
        given, self.given = self.given, None
        if given is None or given.shape[0] != count or given.dim() != 2:
            raise DataError("the network's last linear layer does not get a row for each input")
        return given


class _Meter:
    """Hold coverages of one subject, calibrated once."""

    def __init__(self, context: ExperimentContext, subject: ProofSubject) -> None:
        self._context, self._subject = context, subject
        self._head = Head(subject.model)
        batches = subject.batches(subject.train, context.scale.batch)
        probe = nc.Coverage(subject.model, [nc.NC()])
        run = next(iter(probe.runs(subject.batches(subject.train.take(slice(0, 10)), 10), progress=False)))
        layer = last_before_output(cast(nc.Activations, run.activations), run.output)
        self._all = nc.Coverage(subject.model, [nc.DSC(layers=(layer,)), nc.LCC(), *COVERING])
        self._all.calibrate(batches, progress=False)
        rows = torch.linspace(0, len(subject.train) - 1, min(len(subject.train), MOST_TRACES)).long()
        some = subject.train.take(rows.to(subject.train.labels.device))
        parts = [(head, output) for head, output, _ in self._passes(some)]
        self._train = torch.cat([head for head, _ in parts])
        self._train_labels = some.labels.to(self._train.device)
        outputs = torch.cat([output for _, output in parts])
        decided = outputs.argmax(1)
        self._fast = fast_logits(self._head.layer, self._train, decided == self._train_labels, decided)
        self._neighbours = neighbours(self._train, self._train_labels)
        self._of_outputs = neighbours(outputs, self._train_labels)
        self._mean = self._train.double().mean(0)
        centred = self._train.double() - self._mean
        self._axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :KEPT]

    def _passes(self, samples: Samples) -> Iterator[tuple[Tensor, Tensor, nc.Activations]]:
        """Yield features, logits and activations of every batch."""
        for run in self._all.runs(self._subject.batches(samples, self._context.scale.batch), progress=False):
            activations = cast(nc.Activations, run.activations)
            logits = run.output.logits if hasattr(run.output, "logits") else run.output
            yield self._head.take(activations.size), _two_at_least(logits.detach()), activations

    def measure(self, strength: int, searched: int) -> Measured:
        """Measure one test set."""
        context, subject = self._context, self._subject
        samples = shifted(context, subject.kind, subject.test, strength)
        batches = subject.batches(samples, context.scale.batch)
        forward = self._seconds(lambda: [None for _ in subject_outputs(subject.model, batches)])
        started = time.monotonic()
        found = gather(self._all, batches, Settings(progress=False))
        context.wait()
        ranking = time.monotonic() - started
        every = gather(self._all, batches, Settings(every_score=True, progress=False)).columns
        columns = {name: _small(column) for name, column in {**every, **found.columns}.items()}
        heads, logits, cells = [], [], []
        for head, output, activations in self._passes(samples):
            heads.append(head)
            logits.append(output)
            cells.append([_cells(criterion, activations) for criterion in self._all.criteria[2:]])
        features, scores = torch.cat(heads), torch.cat(logits)
        decided = scores.argmax(1)
        around = self._neighbours.distances(nc.Activations({_HEAD: features}))
        columns |= {
            "truth": _small(samples.labels.cpu().numpy()),
            "most": _small(scores.double().softmax(1).amax(1).cpu().numpy()),
            "largest": _small(scores.amax(1).cpu().numpy()),
            "features": ((features.double() - self._mean) @ self._axes).half().cpu().numpy(),
            "fast": _small(_gini(_two_at_least(self._fast(features, decided)))),
            "trust at head": _small(_trust(self._neighbours, features, decided)),
            "trust at output": _small(_trust(self._of_outputs, scores, decided)),
            "class distances": around.half().cpu().numpy(),
            "seconds": np.array([forward, ranking]),
        }
        orders: dict[str, list[np.ndarray]] = {}
        similar, squares = _similarities(features)
        covered = {
            criterion.name: torch.cat([part[index] for part in cells]).T.contiguous()
            for index, criterion in enumerate(self._all.criteria[2:])
        }
        for name, own in covered.items():
            columns[f"{name} CTM"] = (own > 0).sum(0).int().cpu().numpy()
        for number in range(searched):
            rows = torch.from_numpy(pool_rows(context, len(samples), strength, number)).to(features.device)
            made = self._searches(rows, similar, squares, features)
            made |= {f"{name} CAM": additional_cells(own[:, rows]) for name, own in covered.items()}
            for name, order in made.items():
                orders.setdefault(name, []).append(order.numpy().astype(np.uint16))
        return Measured(columns, {name: np.stack(parts) for name, parts in orders.items()})

    def _searches(self, rows: Tensor, similar: Tensor, squares: Tensor, features: Tensor) -> dict[str, Tensor]:
        lengths = squares[rows].sqrt()
        cosines = similar[rows][:, rows]
        inner = cosines * lengths * lengths[:, None]
        distances = (squares[rows] + squares[rows][:, None] - 2 * inner).clamp(min=0)
        own = features[rows]
        return {
            "k-centre": farthest_first(distances, (own - own.mean(0)).square().sum(1)),
            "facility location": facility_location(cosines.clamp(min=0)),
            "geometric diversity": geometric_diversity(cosines),
        }

    def _seconds(self, work: Any) -> float:
        work()
        self._context.wait()
        started = time.monotonic()
        work()
        self._context.wait()
        return time.monotonic() - started


def subject_outputs(model: nn.Module, batches: Any) -> Iterator[Any]:
    """Run a network as it is, without coverage."""
    with torch.no_grad():
        for batch in batches:
            given = {name: each for name, each in batch.items() if name != "labels"} if isinstance(batch, dict) else {}
            yield model(**given) if given else model(batch[0] if isinstance(batch, tuple) else batch)


def neighbours(features: Tensor, labels: Tensor) -> ClassNeighbours:
    """Return what tells how far decisions can be trusted, given features of training inputs."""
    order = labels.argsort(stable=True)
    classes, counts = torch.unique_consecutive(labels[order], return_counts=True)
    rows = features[order].double()
    directions = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return ClassNeighbours(_HEAD, directions, classes, tuple(counts.tolist()))


def _small(column: np.ndarray) -> np.ndarray:
    """Return numbers as float32, classes in one byte or two."""
    if column.dtype.kind == "f":
        return column.astype(np.float32)
    return column.astype(np.uint8 if column.max() < 256 else np.uint16)


def _gini(logits: Tensor) -> np.ndarray:
    shares = logits.double().softmax(1)
    found: np.ndarray = (shares * (1 - shares)).sum(1).cpu().numpy()
    return found


def _two_at_least(logits: Tensor) -> Tensor:
    """Return logits with a class each; one number z tells two classes apart and stands for (0, z)."""
    if logits.dim() == 2 and logits.shape[1] > 1:
        return logits
    return torch.stack([torch.zeros_like(logits.reshape(-1)), logits.reshape(-1)], dim=1)


def _trust(known: ClassNeighbours, features: Tensor, decided: Tensor) -> np.ndarray:
    batch = nc.Activations({_HEAD: features}, predictions=decided)
    found: np.ndarray = known.score(batch).cpu().numpy()
    return found


def _cells(criterion: Any, batch: nc.Activations) -> Tensor:
    """Return the cell of each neuron that each input hits, 0 for none."""
    parts = [criterion.hits(stack).flatten(1).to(torch.uint8) for stack in batch.stacks]
    return torch.cat(parts, dim=1)


def _similarities(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines between all inputs, and the squared length of each."""
    squares = features.float().square().sum(1)
    directions = features.float() / squares.sqrt().clamp(min=1e-30)[:, None]
    return directions @ directions.T, squares
