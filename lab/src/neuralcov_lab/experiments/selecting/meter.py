"""Run the inputs of a test set through a network once, and find every score, all that each covers, and slow orders.

Training inputs, at most as many as ranking compares with, are run once too: they teach the library's scorers on what
the output layer is given, as ``neuralcov rank --calibrate`` does, and the criteria of the field.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

import neuralcov as nc
from neuralcov.rank.collecting import ALL_SCORES, CONFIDENCE, USUAL
from neuralcov.rank.given import OutputListener
from neuralcov.rank.scorers import MOST_TRACES, ScorerPlan, Scorers
from neuralcov.rank.scores import confidence
from neuralcov.sources.samples import Samples
from neuralcov.statistics.calibration import Calibration
from neuralcov_lab.errors import DataError
from neuralcov_lab.experiments.context import ExperimentContext
from neuralcov_lab.experiments.lcc.subjects import ProofSubject
from neuralcov_lab.experiments.named_subjects import TEXTS
from neuralcov_lab.experiments.selecting.fast import fast_logits
from neuralcov_lab.experiments.selecting.searches import (
    additional_cells,
    facility_location,
    farthest_first,
    geometric_diversity,
)
from neuralcov_lab.experiments.selecting.shifts import shifted

if TYPE_CHECKING:
    from neuralcov.coverage.running import Run

COVERING = (nc.NC(0.75), nc.KMNC(100), nc.NBC(), nc.SNAC(), nc.TKNC(10))
# The distance of hidden states from those of training data, whatever class they are of.
HIDDEN = "hidden distance"
_TAUGHT = tuple(name for name in ALL_SCORES if name not in CONFIDENCE)
# Features are kept along so many directions of most variance in training.
KEPT = 16
# Inputs at a time, which a CPU's caches like; how many are timed, and how often.
_BATCH, _TIMED, _TIMES = 100, 1_000, 2


def pool_rows(context: ExperimentContext, count: int, strength: int, number: int) -> np.ndarray:
    """Return the rows of a random half of a test set."""
    found: np.ndarray = np.sort(context.rows(count, count // 2, 223, strength, number).cpu().numpy())
    return found


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


@dataclass
class _Seen:
    """Gather what batches give, one after the other."""

    heads: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    cells: list[list[Tensor]] = field(default_factory=list)
    columns: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, head: Tensor, output: Tensor) -> None:
        self.heads.append(head)
        self.outputs.append(output)


class Meter:
    """Measure the test sets of one subject, after one pass over its training data."""

    def __init__(self, context: ExperimentContext, subject: ProofSubject) -> None:
        self._context, self._subject = context, subject
        if context.device.type == "cpu":
            # The same numbers but for rounding, and up to twice as fast.
            subject.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._coverage = nc.Coverage(subject.model, [nc.DSC(), nc.LCC()])
        self._head, self._listener = Head(subject.model), OutputListener(subject.model)
        rows = torch.linspace(0, len(subject.train) - 1, min(len(subject.train), MOST_TRACES)).long()
        some = subject.train.take(rows.to(subject.train.labels.device))
        seen = _Seen()
        learning = Learning()
        # Texts are also ranked as prompts are before anything is generated: by hidden states, without classes.
        self._prompts = Learning(("mdsc", "rarity"), by_class=False) if subject.kind == TEXTS else None
        for run, batch in self._runs(some):
            learning.observe(run, batch)
            if self._prompts is not None:
                self._prompts.observe(run, batch)
            seen.add(self._head.take(batch.size), _two_at_least(_logits(run)))
        self._scorers, self._covering = learning.taught()
        self._of_prompts = None if self._prompts is None else self._prompts.taught()[0]
        heads, outputs = torch.cat(seen.heads), torch.cat(seen.outputs)
        labels, decided = some.labels.to(heads.device), outputs.argmax(1)
        self._training_error = float((decided != labels).double().mean())
        self._fast = fast_logits(self._head.layer, heads, decided == labels, decided)
        self._mean = heads.double().mean(0)
        centred = heads.double() - self._mean
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.seed)
            self._axes = torch.pca_lowrank(centred, min(KEPT, *centred.shape), center=False, niter=4)[2]

    def _runs(self, samples: Samples, size: int = _BATCH) -> Iterator[tuple[Run, nc.Activations]]:
        """Yield every batch as it was run, and with what the output layer was given as one layer more."""
        batches = self._subject.batches(samples, min(size, self._context.scale.batch))
        with self._listener.listening():
            for run in self._coverage.runs(batches, progress=False):
                yield run, self._listener.joined(run)

    def measure(self, strength: int, searched: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return numbers of every input of a test set, and slow orders of some pools."""
        samples = shifted(self._context, self._subject.kind, self._subject.test, strength)
        seen = self._see(samples)
        features, scores = torch.cat(seen.heads), torch.cat(seen.outputs)
        decided = scores.argmax(1)
        own = {name: torch.cat(parts).cpu().numpy() for name, parts in seen.columns.items()}
        columns = {name: _small(column, exact=name in ("margin", *USUAL)) for name, column in own.items()}
        columns |= {
            "truth": _small(samples.labels.cpu().numpy()),
            "most": _small(scores.double().softmax(1).amax(1).cpu().numpy(), exact=True),
            "features": ((features.double() - self._mean) @ self._axes).half().cpu().numpy(),
            "fast": _small(_gini(_two_at_least(self._fast(features, decided)))),
            "training error": np.array(self._training_error),
            "seconds": np.array(self._seconds(samples) if not strength else (0.0, 0.0)),
        }
        covered = {
            criterion.name: torch.cat([part[index] for part in seen.cells]).T.contiguous()
            for index, criterion in enumerate(self._covering)
        }
        for name, cells in covered.items():
            columns[f"{name} CTM"] = (cells > 0).sum(0).int().cpu().numpy()
        return columns, self._orders(strength, searched, features, covered)

    def _see(self, samples: Samples) -> _Seen:
        seen = _Seen()
        for run, batch in self._runs(samples):
            for name, column in self._numbers(run, batch, ALL_SCORES).items():
                seen.columns.setdefault(name, []).append(column)
            if self._of_prompts is not None:
                seen.columns.setdefault(HIDDEN, []).append(self._of_prompts.score("mdsc", batch))
            seen.add(self._head.take(batch.size), _two_at_least(_logits(run)))
            seen.cells.append([_cells(criterion, run.activations) for criterion in self._covering])
        return seen

    def _numbers(self, run: Run, batch: nc.Activations, names: tuple[str, ...]) -> dict[str, Tensor]:
        """Return scores of a batch, and the two most probable classes."""
        sure = confidence(run.output, batch.size)
        assert sure is not None
        found = {
            name: getattr(sure, name) if name in CONFIDENCE else self._scorers.score(name, batch) for name in names
        }
        return {**found, "first": sure.first, "second": sure.second}

    def _orders(
        self, strength: int, searched: int, features: Tensor, covered: dict[str, Tensor]
    ) -> dict[str, np.ndarray]:
        orders: dict[str, list[np.ndarray]] = {}
        for number in range(searched):
            rows = torch.from_numpy(pool_rows(self._context, len(features), strength, number)).to(features.device)
            made = searches(features[rows])
            made |= {f"{name} CAM": additional_cells(own[:, rows]) for name, own in covered.items()}
            for name, order in made.items():
                orders.setdefault(name, []).append(order.numpy().astype(np.uint16))
        return {name: np.stack(parts) for name, parts in orders.items()}

    def _seconds(self, samples: Samples) -> tuple[float, float]:
        """Return the time of the network alone and of ranking with it, the least of a few: processor time on a CPU."""
        some = samples.take(slice(0, _TIMED))
        batches = self._subject.batches(some, _BATCH)

        def alone() -> None:
            for _ in subject_outputs(self._subject.model, batches):
                pass

        def ranking() -> None:
            for run, batch in self._runs(some, _BATCH):
                self._numbers(run, batch, USUAL)

        taken = [(self._taken(alone), self._taken(ranking)) for _ in range(_TIMES)]
        return min(first for first, _ in taken), min(second for _, second in taken)

    def _taken(self, work: Callable[[], None]) -> float:
        clock = time.process_time if self._context.device.type == "cpu" else time.monotonic
        self._context.wait()
        started = clock()
        work()
        self._context.wait()
        return clock() - started


class Learning:
    """Teach the library's scorers and the field's criteria in one pass."""

    def __init__(self, names: tuple[str, ...] = _TAUGHT, *, by_class: bool = True) -> None:
        self._plan = ScorerPlan(names, by_class)
        self._scoring: Calibration | None = None
        self._covering: Calibration | None = None
        self._layer = ""

    def observe(self, run: Run, batch: nc.Activations) -> None:
        """Learn from a batch: as it was run, and with what the output layer was given."""
        own = cast(nc.Activations, run.activations)
        if self._scoring is None or self._covering is None:
            self._scoring, self._layer = self._plan.empty(batch, run.output)
            self._covering = Calibration.empty(own.layout, list(COVERING))
        self._scoring, self._covering = self._scoring.observe(batch), self._covering.observe(own)

    def taught(self) -> tuple[Scorers, list[Any]]:
        """Return the scorers and the criteria, taught by all batches."""
        assert self._scoring is not None
        assert self._covering is not None
        known = self._covering.finished()
        covering = [criterion.calibrate(known) if criterion.learns else criterion for criterion in COVERING]
        return self._plan.teach_from(self._scoring.finished(), self._layer), covering


def searches(features: Tensor) -> dict[str, Tensor]:
    """Return the orders of inputs that are found by searching among all of their features."""
    squares = features.float().square().sum(1)
    lengths = squares.sqrt()
    directions = features.float() / lengths.clamp(min=1e-30)[:, None]
    cosines = directions @ directions.T
    distances = (squares + squares[:, None] - 2 * cosines * lengths * lengths[:, None]).clamp(min=0)
    return {
        "k-centre": farthest_first(distances, (features - features.mean(0)).square().sum(1)),
        "facility location": facility_location(cosines.clamp(min=0)),
        "geometric diversity": geometric_diversity(cosines),
    }


def subject_outputs(model: nn.Module, batches: Any) -> Iterator[Any]:
    """Run a network as it is, without coverage."""
    with torch.no_grad():
        for batch in batches:
            given = {name: each for name, each in batch.items() if name != "labels"} if isinstance(batch, dict) else {}
            yield model(**given) if given else model(batch[0] if isinstance(batch, tuple) else batch)


def _small(column: np.ndarray, *, exact: bool = False) -> np.ndarray:
    """Return numbers as float32 unless they are to be exact, classes in one byte or two."""
    if column.dtype.kind == "f":
        return column.astype(np.float64 if exact else np.float32)
    return column.astype(np.uint8 if column.max() < 256 else np.uint16)


def _gini(logits: Tensor) -> np.ndarray:
    shares = logits.double().softmax(1)
    found: np.ndarray = (shares * (1 - shares)).sum(1).cpu().numpy()
    return found


def _logits(run: Run) -> Tensor:
    output = run.output.logits if hasattr(run.output, "logits") else run.output
    return cast(Tensor, output).detach()


def _two_at_least(logits: Tensor) -> Tensor:
    """Return logits with a class each; one number z tells two classes apart and stands for (0, z)."""
    if logits.dim() == 2 and logits.shape[1] > 1:
        return logits
    return torch.stack([torch.zeros_like(logits.reshape(-1)), logits.reshape(-1)], dim=1)


def _cells(criterion: Any, batch: Any) -> Tensor:
    """Return the cell of each neuron that each input hits, 0 for none."""
    parts = [criterion.hits(stack).flatten(1).to(torch.uint8) for stack in batch.stacks]
    return torch.cat(parts, dim=1)
