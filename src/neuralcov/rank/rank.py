"""Rank inputs, those first that the model most likely gets wrong, without labels or with a few hundred.

Without labels an input's place is a sum of two ranks: two and a half times that by DeepGini's 1 − Σ p², largest first,
and that by trust, the distance to training inputs of other classes over that to those of the predicted class, on the
last layer before the output, smallest first. The one knows where the model hesitates, the other where training data
speak against a decision that the model is sure of. With labels, logistic regression learns from the labelled inputs how
much each of eight scores tells of faults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neuralcov.core.counted import agreeing, counted
from neuralcov.core.errors import InputError
from neuralcov.coverage.coverage import Coverage
from neuralcov.rank.collecting import SMALLEST_FIRST, USUAL, USUAL_OF_STATES, Gathered, Settings, gather
from neuralcov.rank.learning import Labels, Logistic, fit_logistic, read_labels
from neuralcov.rank.queue import Queue
from neuralcov.rank.reasons import Reasons
from neuralcov.rank.scorers import MOST_TRACES, score_name
from neuralcov.rank.scores import average_ranks
from neuralcov.tap.inputs import Lengths

# Chosen on two networks for Fashion-MNIST, 200 and 500 labels: at 1 few labels may mislead, at 60 they teach little.
_RIDGE = 5.0


def rank(
    coverage: Coverage,
    data: Iterable[Any],
    *,
    training: Iterable[Any] | None = None,
    labels: Labels | None = None,
    classes: Sequence[str] = (),
    layer: str | None = None,
    traces: int = MOST_TRACES,
    states: bool = False,
    lengths: Lengths | None = None,
    work: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Queue:
    """Rank inputs by how likely the model gets them wrong; the coverage observes nothing.

    The model runs once on every input. Without classes to read, as for embeddings and language models, the ranks of
    MDSC's surprise and of the rarity of LCC's kinds are summed; labels are then 1 for a fault and 0 for none.

    Args:
        coverage: of the model, calibrated with DSC among its criteria; with ``labels`` also LCC.
        data: a loader of the inputs to rank, with or without labels.
        training: a loader of training data, in place of a calibration.
        labels: classes of some inputs by id (or position, or a file), to learn from; these are left out of the queue.
        classes: names of the classes, for reasons.
        layer: where surprise is measured; by default the last layer before the output.
        traces: training inputs, evenly spaced, to measure it against at most.
        states: rank by hidden states alone, as models without classes are ranked; for embeddings, which look like
            scores of classes, or to rank inputs before they are answered.
        lengths: as for ``assess``.
        work: a file that keeps what was found, so that a run which was stopped goes on from there.
        folder: where ids that are relative paths begin.
        progress: show a bar; by default only in a terminal.

    Examples:
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
        states=states,
        lengths=lengths,
        work=work,
        progress=progress,
    )
    known = None if labels is None else read_labels(labels)
    return queue_of(gather(coverage, data, settings), known, classes, folder)


def queue_of(
    found: Gathered, labels: dict[str, int] | None, classes: Sequence[str], folder: str | os.PathLike[str] | None
) -> Queue:
    """Return the queue that follows from what is known of every input; columns that nobody needs any more go."""
    notes = [*found.notes, *_exclusion_notes(found)]
    judged = _judged(found, labels, notes)
    weights = judged.weights or {}
    reasons = Reasons.of(found, weights, classes)
    for name in set(found.scores) - {"margin", *reasons.scores}:
        del found.columns[name]
    order = judged.order()
    scores = judged.scores(sum(_usual(found).values()))
    where = None if folder is None else Path(folder)
    return Queue(order, scores, found.names, reasons, where, weights, tuple(notes), reasons.said)


@dataclass(frozen=True, eq=False)
class _Judged:
    """Hold what decides the order, exactly; learnt weights, and the positions of inputs that have labels."""

    merit: np.ndarray
    weights: dict[str, float] | None = None
    labelled: np.ndarray | None = None

    def order(self) -> np.ndarray:
        """Return the positions of inputs without labels, the greatest merit first, then by position."""
        # Negated in place, to spare a copy.
        np.negative(self.merit, out=self.merit)
        order = self.merit.argsort(kind="stable")
        np.negative(self.merit, out=self.merit)
        if self.labelled is None:
            return order
        left = np.ones(len(order), dtype=bool)
        left[self.labelled] = False
        return order[left[order]]

    def scores(self, summed: float) -> np.ndarray:
        """Turn merit into scores to show, in place.

        A learnt one into the chance of a fault; a sum of ranks into 1 for the first by all scores, 0 for the last.
        """
        scores = self.merit
        if self.weights is not None:
            np.negative(scores, out=scores)
            np.exp(scores, out=scores)
            scores += 1
            np.reciprocal(scores, out=scores)
            return scores
        scores += summed
        scores /= summed * max(1, len(scores) - 1)
        scores += 1
        return scores


def _judged(found: Gathered, labels: dict[str, int] | None, notes: list[str]) -> _Judged:
    usual = _usual(found)
    if labels is None:
        return _Judged(_by_ranks(found, usual))
    rows = ((position, labels.get(str(found.names.id(position)))) for position in range(found.count))
    known = [(position, label) for position, label in rows if label is not None]
    if not known:
        raise InputError(
            f"none of {counted(len(labels), 'label')} belongs to an input: labels go by id, and the first id is "
            f"{found.names.id(0)!r}"
        )
    if len(known) < len(labels):
        notes.append(
            f"{len(labels) - len(known)} of {counted(len(labels), 'label')} "
            f"{agreeing(len(labels) - len(known), 'belongs', 'belong')} to no input of the data"
        )
    positions = np.array([position for position, _ in known])
    wrong = _faults(found, positions, np.array([label for _, label in known]))
    if wrong.all() or not wrong.any():
        notes.append(
            f"{'all' if wrong.any() else 'none'} of {counted(len(known), 'labelled input')} "
            f"{agreeing(len(known), 'is a fault', 'are faults')}, which teaches nothing: ranked as without labels"
        )
        return _Judged(_by_ranks(found, usual), None, positions)
    learnt = _learnt(found, positions, wrong)
    merit = np.full(found.count, learnt.intercept)
    for weight, name in zip(learnt.weights.tolist(), found.scores, strict=True):
        _add_suspicion(found, name, weight, merit)
    notes.append(
        f"learnt from {counted(len(known), 'labelled input')}, {int(wrong.sum())} of them faults; "
        "these are left out of the queue"
    )
    return _Judged(merit, dict(zip(found.scores, learnt.weights.tolist(), strict=True)), positions)


def _usual(found: Gathered) -> Mapping[str, float]:
    """Return the scores whose ranks are summed without labels, and how much each counts."""
    known = (weights for weights in (USUAL, USUAL_OF_STATES) if set(weights) <= set(found.scores))
    return next(known, dict.fromkeys(found.scores, 1.0))


def _faults(found: Gathered, positions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Tell which labelled inputs are faults; of a model without classes the labels themselves say it."""
    if "first" in found.columns:
        wrong: np.ndarray = found.columns["first"][positions] != labels
        return wrong
    others = labels[(labels != 0) & (labels != 1)]
    if len(others):
        raise InputError(
            f"the label {others[0]}: this model has no classes, so that labels are 1 for a fault and 0 for none"
        )
    marked: np.ndarray = labels == 1
    return marked


def _by_ranks(found: Gathered, weights: Mapping[str, float]) -> np.ndarray:
    """Sum the weighted ranks by some scores, negated: the larger the sooner."""
    total = np.zeros(found.count)
    for name, weight in weights.items():
        _add_ranks(found, name, -weight, total)
    return total


def _add_ranks(found: Gathered, name: str, weight: float, onto: np.ndarray) -> None:
    """Add the weighted rank of each input by one score, 1 for the most suspicious."""
    average_ranks(found.columns[name], largest_first=name not in SMALLEST_FIRST, weight=weight, onto=onto)


def _add_suspicion(found: Gathered, name: str, weight: float, onto: np.ndarray) -> None:
    """Add the weighted ranks by one score as a feature: the larger the more suspicious, mean 0, variance about 1."""
    scale = weight * 12**0.5
    onto += scale * (0.5 + 0.5 / found.count)
    _add_ranks(found, name, -scale / found.count, onto)


def _learnt(found: Gathered, positions: np.ndarray, wrong: np.ndarray) -> Logistic:
    """Learn weights from labelled inputs, held to the scores that rank without labels, each as much as the other."""
    features = torch.empty(len(positions), len(found.scores), dtype=torch.float64)
    # One array for all: a second one beside the last would cost 8 bytes an input.
    suspicion = np.empty(found.count)
    for column, name in enumerate(found.scores):
        suspicion.fill(0)
        _add_suspicion(found, name, 1.0, suspicion)
        features[:, column] = torch.from_numpy(suspicion[positions])
    faults = torch.from_numpy(wrong)
    # Equal weights: with those that rank without labels, faults were found later on networks used for choosing.
    names = _usual(found)
    usual = torch.tensor([float(name in names) for name in found.scores], dtype=torch.float64)
    scale = fit_logistic(features @ usual[:, None], faults).weights
    return fit_logistic(features, faults, ridge=_RIDGE, prior=scale.clamp(min=0) * usual)


def _exclusion_notes(found: Gathered) -> list[str]:
    notes = []
    broken = found.broken()
    if broken.any():
        count = int(broken.sum())
        stand = agreeing(count, "stands", "stand")
        notes.append(f"{counted(count, 'input')} whose output is NaN or infinite {stand} first")
    for name in found.scores:
        missing = int((np.isnan(found.columns[name]) & ~broken).sum())
        if missing:
            have, take = agreeing(missing, "has", "have"), agreeing(missing, "takes", "take")
            notes.append(f"{counted(missing, 'input')} {have} no {score_name(name)} and {take} its mean rank")
    return notes
