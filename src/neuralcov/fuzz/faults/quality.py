"""Judge what a campaign found: classes reached, entropy, Inception Score and Fréchet distance."""

from __future__ import annotations

import importlib
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError

# Pixels in [0, 1], (batch, channels, height, width) → (batch, features).
Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Naturalness:
    """Inception Score (higher is better), its deviation over splits, and Fréchet distance (lower is better).

    ``None`` where there were too few images: the score needs one image per split, the distance two on each side.
    """

    inception_score: float | None
    inception_deviation: float | None
    frechet_distance: float | None
    images: int
    references: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@torch.no_grad()
def naturalness(
    images: Tensor,
    references: Tensor,
    features: Features,
    *,
    classifier: Features | None = None,
    batch: int = 100,
    splits: int = 10,
    seed: int = 0,
) -> Naturalness:
    """How natural images look, beside references such as the seeds they were made from.

    Args:
        images: ``(n, channels, height, width)`` pixels, bytes or floats in [0, 1].
        references: likewise.
        features: from pixels in [0, 1] to features, such as ``zoo.inception().of_pixels``.
        classifier: from pixels in [0, 1] to logits, for the score; without one the features stand for logits, which
            is what there is to do with Inception weights that lack the last layer.
        batch: images at a time.
        splits: parts the score is averaged over.
        seed: of the order in which images are dealt to the parts.
    """
    theirs = _run(features, references, batch)
    ours = _run(features, images, batch)
    logits = ours if classifier is None else _run(classifier, images, batch)
    mean, deviation = _inception_score(logits, splits, seed) if len(images) >= splits else (None, None)
    distance = _frechet_distance(ours, theirs) if min(len(images), len(references)) >= 2 else None
    return Naturalness(mean, deviation, distance, len(images), len(references))


def _run(network: Features, images: Tensor, batch: int) -> Tensor:
    """What a network makes of images, on the CPU and in float64.

    The score's logarithms underflow in float32, and not every device can do the distance's eigenvalues.
    """
    found = [network(_pixels(part)).cpu().double() for part in torch.split(images, batch) if len(part)]
    if found and found[0].dim() != 2:
        raise InputError(f"features of shape {tuple(found[0].shape)}: expected (images, features)")
    return torch.cat(found) if found else torch.zeros(0, 0)


def _inception_score(logits: Tensor, splits: int, seed: int) -> tuple[float | None, float | None]:
    with warnings.catch_warnings():
        # That it keeps all features is no news to somebody who hands them over.
        warnings.simplefilter("ignore", UserWarning)
        metric = _torchmetrics("inception").InceptionScore(feature=_Given(logits.shape[1]), splits=splits)
    metric.update(logits)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # images are dealt to the parts by the global generator
        mean, deviation = metric.compute()
    return _number(mean), _number(deviation)


def _frechet_distance(ours: Tensor, theirs: Tensor) -> float | None:
    given = _Given(ours.shape[1])
    metric = _torchmetrics("fid").FrechetInceptionDistance(feature=given, normalize=True)
    metric.update(theirs, real=True)
    metric.update(ours, real=False)
    return _number(metric.compute())


def _torchmetrics(name: str) -> Any:
    try:
        return importlib.import_module(f"torchmetrics.image.{name}")
    except ImportError as error:
        raise InputError(
            "Inception Score and Fréchet distance need torchmetrics: pip install 'neuralcov[quality]'"
        ) from error


class _Given(nn.Module):
    """Stands where torchmetrics expects a network, for features that were computed already."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width

    def forward(self, features: Tensor) -> Tensor:
        return features


def _pixels(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _number(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def classes_reached(predicted: Iterable[int] | Mapping[int, int]) -> int:
    """How many classes the faults are predicted as; a mapping counts how often each.

    >>> classes_reached([3, 3, 5]), classes_reached({})
    (2, 0)
    """
    return len(_counts(predicted))


def scaled_entropy(predicted: Iterable[int] | Mapping[int, int]) -> float:
    """``−Σ p ln p / ln(classes reached)`` over the predicted classes of the faults; 0 for a single class.

    1.0: every class reached is reached as often. (The paper prints a factor 1/|C|, which cannot give its own table.)

    >>> scaled_entropy([0, 0, 1, 1]), scaled_entropy([4, 4]), round(scaled_entropy({0: 3, 1: 1}), 4)
    (1.0, 0.0, 0.8113)
    """
    counts = _counts(predicted)
    if len(counts) < 2:
        return 0.0
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values()) / math.log(len(counts))


def _counts(predicted: Iterable[int] | Mapping[int, int]) -> dict[int, int]:
    counted = predicted if isinstance(predicted, Mapping) else Counter(predicted)
    return {label: count for label, count in counted.items() if count}
