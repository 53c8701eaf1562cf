"""Rank inputs, those first that the model most likely gets wrong, without labels or with a few hundred.

Without labels an input's place is the sum of two ranks: by the margin p₁ − p₂ between the two most probable classes,
smallest first, and by DSC's surprise on the last layer before the output, largest first. The one knows where the model
hesitates, the other where it knows little and does not hesitate. With labels, logistic regression learns from the
labelled inputs how much each of seven scores tells of faults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.rank.collecting import Gathered, Settings, gather
from neuralcov.rank.learning import Labels, Logistic, fit_logistic, read_labels
from neuralcov.rank.queue import Queue
from neuralcov.rank.reasons import Reasons
from neuralcov.rank.scorers import MOST_TRACES
from neuralcov.rank.scores import average_ranks
from neuralcov.tap.inputs import Lengths

# All but this one grow with doubt.
_SMALLEST_FIRST = frozenset({"margin"})


def rank(
    coverage: Coverage,
    data: Iterable[Any],
    *,
    training: Iterable[Any] | None = None,
    labels: Labels | None = None,
    classes: Sequence[str] = (),
    layer: str | None = None,
    traces: int = MOST_TRACES,
    lengths: Lengths | None = None,
    work: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Queue:
    """Rank inputs by how likely the model gets them wrong; the coverage observes nothing.

    The model runs once on every input. Without classes to read, as for embeddings, the ranks of MDSC's surprise and of
    the rarity of LCC's kinds are summed.

    Args:
        coverage: of the model, calibrated with DSC among its criteria; with ``labels`` also LCC.
        data: a loader of the inputs to rank, with or without labels.
        training: a loader of training data, in place of a calibration.
        labels: classes of some inputs by id (or position, or a file), to learn from; these are left out of the queue.
        classes: names of the classes, for reasons.
        layer: where surprise is measured; by default the last layer before the output.
        traces: training inputs, evenly spaced, to measure it against at most.
        lengths: as for ``assess``.
        work: a file that keeps what was found, so that a run which was stopped goes on from there.
        folder: where ids that are relative paths begin.
        progress: show a bar; by default only in a terminal.

    Example:
        >>> import torch, neuralcov as nc
        >>> x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> queue = nc.rank(nc.Coverage(model, [nc.DSC()]), [x[100:]], training=[x[:100]])
        >>> len(queue), queue[0].rank
        (100, 1)
    """
    settings = Settings(
        every_score=labels is not None,
        training=training,
        layer=layer,
        traces=traces,
        lengths=lengths,
        work=work,
        progress=progress,
    )
    known = None if labels is None else read_labels(labels)
    return queue_of(gather(coverage, data, settings), known, classes, folder)


def queue_of(
    found: Gathered, labels: dict[str, int] | None, classes: Sequence[str], folder: str | os.PathLike[str] | None
) -> Queue:
    """Return the queue that follows from what is known of every input."""
    notes = [*found.notes, *_exclusion_notes(found)]
    judged = _judged(found, labels, notes)
    order = (-judged.merit).argsort(kind="stable")
    if judged.labelled is not None:
        order = order[~judged.labelled[order]]
    reasons = Reasons.of(found, judged.weights, classes)
    where = None if folder is None else Path(folder)
    return Queue(order, judged.scores, found.names, reasons, where, judged.weights, tuple(notes))


@dataclass(frozen=True, eq=False)
class _Judged:
    """Hold what decides the order (``merit``, exact), the score to show, learnt weights, and inputs with labels."""

    merit: np.ndarray
    scores: np.ndarray
    weights: dict[str, float]
    labelled: np.ndarray | None = None


def _judged(found: Gathered, labels: dict[str, int] | None, notes: list[str]) -> _Judged:
    if labels is None:
        return _by_ranks(found, ("margin", "dsc") if "margin" in found.scores else found.scores)
    rows = [(position, labels.get(str(found.names.id(position)))) for position in range(found.count)]
    known = [(position, label) for position, label in rows if label is not None]
    if not known:
        raise InputError(
            f"none of {len(labels)} labels belongs to an input: labels go by id, and the first id is "
            f"{found.names.id(0)!r}"
        )
    if len(known) < len(labels):
        notes.append(f"{len(labels) - len(known)} of {len(labels)} labels belong to no input of the data")
    positions = np.array([position for position, _ in known])
    wrong = found.columns["first"][positions] != np.array([label for _, label in known])
    labelled = np.zeros(found.count, dtype=bool)
    labelled[positions] = True
    if wrong.all() or not wrong.any():
        notes.append(
            f"{'all' if wrong.any() else 'none'} of {len(known)} labelled inputs are faults, so that they teach "
            "nothing: ranked as without labels"
        )
        plain = _by_ranks(found, ("margin", "dsc"))
        return _Judged(plain.merit, plain.scores, {}, labelled)
    learnt = _learnt(found, positions, wrong)
    merit = np.full(found.count, learnt.intercept)
    for weight, name in zip(learnt.weights.tolist(), found.scores, strict=True):
        merit += weight * suspicion(found, name)
    notes.append(f"learnt from {len(known)} labelled inputs, {int(wrong.sum())} of them faults, which are left out")
    weights = dict(zip(found.scores, learnt.weights.tolist(), strict=True))
    return _Judged(merit, 1 / (1 + np.exp(-merit)), weights, labelled)


def _by_ranks(found: Gathered, names: Sequence[str]) -> _Judged:
    """Sum the ranks by some scores; the score to show is 1 for the first by all of them and 0 for the last."""
    total = np.zeros(found.count)
    for name in names:
        total -= ranks_by(found, name)
    span = len(names) * max(1, found.count - 1)
    return _Judged(total, 1 + (total + len(names)) / span, {})


def ranks_by(found: Gathered, name: str) -> np.ndarray:
    """Return the rank of each input by one score, 1 for the most suspicious; before all, NaN outputs."""
    column = found.columns[name]
    numbers = column.astype(np.float64) if name in _SMALLEST_FIRST else -column.astype(np.float64)
    numbers[found.broken()] = -np.inf
    return average_ranks(numbers)


def suspicion(found: Gathered, name: str) -> np.ndarray:
    """Return the ranks by one score as a feature: the larger the more suspicious, mean 0, variance about 1."""
    ranks = ranks_by(found, name)
    ranks -= 0.5
    ranks /= found.count
    return (0.5 - ranks) * 12**0.5


def _learnt(found: Gathered, positions: np.ndarray, wrong: np.ndarray) -> Logistic:
    """Learn weights from labelled inputs, held to those that rank without labels."""
    features = torch.from_numpy(np.stack([suspicion(found, name)[positions] for name in found.scores], axis=1))
    faults = torch.from_numpy(wrong)
    usual = torch.tensor([float(name in ("margin", "dsc")) for name in found.scores], dtype=torch.float64)
    scale = fit_logistic(features @ usual[:, None], faults).weights
    return fit_logistic(features, faults, prior=scale.clamp(min=0) * usual)


def _exclusion_notes(found: Gathered) -> list[str]:
    notes = []
    broken = found.broken()
    if broken.any():
        notes.append(f"{int(broken.sum())} inputs whose output is NaN or infinite stand first")
    for name in found.scores:
        missing = int((np.isnan(found.columns[name]) & ~broken).sum())
        if missing:
            notes.append(f"{missing} inputs have no {name.upper()} and take its mean rank")
    return notes
