"""Learn from labelled inputs how much each score tells of faults: logistic regression by Newton's method, in float64.

The weights minimise Σ ln(1 + exp(−y·(b + w·x))) + ½·ridge·‖w − prior‖², y = ±1, over w and the intercept b, which is
not penalised. The sum is convex and each step is halved until it falls, so that the steps end at its only minimum.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.errors import InputError
from neuralcov.core.files import AnyPath, ending_of, name_of, read_text
from neuralcov.core.shapes import Bool, Float

_STEPS = 100
_PRECISE = 1e-10

Labels = Mapping[Any, Any] | Sequence[Any] | AnyPath


@dataclass(frozen=True, eq=False)
class Logistic:
    """Hold the weights of scores and the intercept."""

    weights: Float[Tensor, "features"]
    intercept: float


def fit_logistic(
    features: Float[Tensor, "rows features"],
    positive: Bool[Tensor, "rows"],
    *,
    ridge: float = 1.0,
    prior: Float[Tensor, "features"] | None = None,
) -> Logistic:
    """Return the weights with which features tell positive rows from the others.

    Args:
        features: float64.
        positive: which rows are; some must be and some not.
        ridge: how strongly weights are held to the prior.
        prior: weights to expect before any row is seen; 0 by default.
    """
    rows = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], dim=1)
    signs = torch.where(positive, 1.0, -1.0).double()
    centre = torch.zeros(rows.shape[1], dtype=torch.float64)
    if prior is not None:
        centre[:-1] = prior
    penalty = torch.full_like(centre, ridge)
    penalty[-1] = 0.0

    def loss(weights: Tensor) -> Tensor:
        fit = torch.nn.functional.softplus(-signs * (rows @ weights)).sum()
        return fit + 0.5 * (penalty * (weights - centre).square()).sum()

    weights, current = centre, loss(centre)
    for _ in range(_STEPS):
        chance = torch.sigmoid(rows @ weights)
        gradient = rows.T @ (chance - positive.double()) + penalty * (weights - centre)
        curvature = rows.T @ (rows * (chance * (1 - chance))[:, None]) + torch.diag(penalty)
        # A trace of curvature everywhere: far from the minimum chances may all be 0 or 1.
        step = torch.linalg.solve(curvature + 1e-12 * torch.eye(len(weights), dtype=torch.float64), gradient)
        size = 1.0
        while size > _PRECISE and not loss(weights - size * step) <= current:
            size /= 2
        weights = weights - size * step
        current = loss(weights)
        if float((size * step).abs().max()) < _PRECISE:
            break
    return Logistic(weights[:-1], float(weights[-1]))


def read_labels(labels: Labels) -> dict[str, int]:
    """Return classes by id: of a mapping, of a list by position (``None`` or −1 for unknown), or of a file.

    A file is CSV with the columns ``id`` and ``label``, or lines of JSON with these keys.

    >>> read_labels({"a.png": 3}), read_labels([None, 7])
    ({'a.png': 3}, {'1': 7})
    """
    if isinstance(labels, (str, os.PathLike)):
        pairs = _pairs_of_file(labels)
    elif isinstance(labels, Mapping):
        pairs = list(labels.items())
    else:
        pairs = list(enumerate(labels.tolist() if isinstance(labels, Tensor) else labels))
    found = {str(name): _as_class(label, name) for name, label in pairs if not _is_unknown(label)}
    if not found:
        raise InputError(
            "labels: there is none among them; expected classes by id, or a file with the columns id,label"
        )
    return found


def _is_unknown(label: Any) -> bool:
    return label is None or label == "" or label == -1


def _as_class(label: Any, name: Any) -> int:
    try:
        number = int(label)
    except (TypeError, ValueError):
        number = None
    if number is None or (not isinstance(label, str) and number != label):
        raise InputError(f"the label {label!r} of {name!r}: expected the number of a class, as the model counts them")
    return number


def _pairs_of_file(path: AnyPath) -> list[tuple[Any, Any]]:
    text = read_text(path, "utf-8-sig")
    try:
        if ending_of(path) == ".jsonl":
            rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = list(csv.DictReader(text.splitlines()))
        return [(row["id"], row["label"]) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{name_of(path)}: expected CSV with the columns id and label, or .jsonl with these keys ({error})"
        ) from error
