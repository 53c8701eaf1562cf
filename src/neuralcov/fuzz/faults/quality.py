"""Judge what a campaign found: classes reached, entropy, Inception Score and Fréchet distance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from neuralcov.core.counted import counted
from neuralcov.core.errors import InputError
from neuralcov.core.shapes import Float

# Pixels in [0, 1], (batch, channels, height, width) → (batch, features).
Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Naturalness:
    """Hold the Inception Score (higher is better), its deviation, and the Fréchet distance (lower is better).

    ``None`` where there were too few images: the score needs one image per split, the distance two on each side.
    """

    inception_score: float | None
    inception_deviation: float | None
    frechet_distance: float | None
    images: int
    references: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
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
    """Measure how natural images look, beside references such as the seeds they were made from.

    Args:
        images: ``(n, channels, height, width)`` pixels, bytes or floats in [0, 1].
        references: likewise.
        features: from pixels in [0, 1] to features, such as ``of_pixels`` of the lab's Inception.
        classifier: from pixels in [0, 1] to logits, for the score; without one the features stand for logits, which
            is what there is to do with Inception weights that lack the last layer.
        batch: images at a time.
        splits: parts the score is averaged over.
        seed: of the order in which images are dealt to the parts.
    """
    theirs = _run(features, references, batch)
    ours = _run(features, images, batch)
    logits = ours if classifier is None else _run(classifier, images, batch)
    mean, deviation = inception_score(logits, splits, seed) if len(images) >= splits else (None, None)
    enough = min(len(images), len(references)) >= 2
    distance = frechet_distance(gaussian_of([ours]), gaussian_of([theirs])) if enough else None
    return Naturalness(_finite(mean), _finite(deviation), _finite(distance), len(images), len(references))


def _run(network: Features, images: Tensor, batch: int) -> Tensor:
    """Return what a network makes of images, on the CPU and in float64.

    The score's logarithms underflow in float32, and not every device can do the distance's eigenvalues.
    """
    found = [network(_pixels(part)).cpu().double() for part in torch.split(images, batch) if len(part)]
    if found and found[0].dim() != 2:
        raise InputError(f"features of shape {tuple(found[0].shape)}: expected (images, features)")
    return torch.cat(found) if found else torch.zeros(0, 0)


def inception_score(logits: Float[Tensor, "n classes"], splits: int = 10, seed: int = 0) -> tuple[float, float]:
    """Return the Inception Score (Salimans et al., 2016) and its deviation over splits.

    A part's score is exp of the mean divergence of its images' class shares p(c | x) from the part's mean share p(c).
    Logarithms of softmax are taken in float64, where shares that underflow in float32 still count.

    Args:
        logits: what a classifier makes of the images.
        splits: parts the images are dealt to at random, as evenly as they go.
        seed: seed of that order.
    """
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed))
    logs = torch.log_softmax(logits.double(), 1)[order.to(logits.device)]
    scores = []
    for part in torch.tensor_split(logs, splits):
        mean = torch.logsumexp(part, 0) - math.log(len(part))
        scores.append((part.exp() * (part - mean)).sum(1).mean().exp())
    found = torch.stack(scores)
    return float(found.mean()), float(found.std()) if splits > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Hold mean and covariance (divided by n − 1) of features, in float64."""

    count: int
    mean: Float[Tensor, "width"]
    covariance: Float[Tensor, "width width"]


def gaussian_of(features: Iterable[Float[Tensor, "_ width"]]) -> Gaussian:
    """Return the moments of features that come in batches, each joined to those before about its own mean."""
    count, mean, scatter = 0, None, None
    for batch in features:
        rows = batch.double()
        if not len(rows):
            continue
        here = rows.mean(0)
        apart = rows - here
        if mean is None or scatter is None:
            count, mean, scatter = len(rows), here, apart.T @ apart
            continue
        total, step = count + len(rows), here - mean
        scatter = scatter + apart.T @ apart + torch.outer(step, step) * (count * len(rows) / total)
        count, mean = total, mean + step * (len(rows) / total)
    if mean is None or scatter is None or count < 2:
        raise InputError(
            f"{counted(count, 'image')}: a Fréchet distance needs at least 2, and thousands to mean something"
        )
    return Gaussian(count, mean, scatter / (count - 1))


def frechet_distance(ours: Gaussian, theirs: Gaussian) -> float:
    """Return ‖μ₁ − μ₂‖² + tr(Σ₁ + Σ₂ − 2·(Σ₁Σ₂)^½), the Fréchet distance.

    The trace of the root is that of the root of the symmetric SΣ₂S with SS = Σ₁, whose
    eigenvalues a GPU finds in a second where those of Σ₁Σ₂ take ten.

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> round(frechet_distance(gaussian_of([x]), gaussian_of([x + 1])), 6)
    3.0
    """
    device = ours.mean.device
    values, vectors = torch.linalg.eigh(ours.covariance)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    other = theirs.covariance.to(device)
    shared = torch.linalg.eigvalsh(root @ other @ root).clamp(min=0).sqrt().sum()
    apart = (ours.mean - theirs.mean.to(device)).square().sum()
    return float(apart + ours.covariance.trace() + other.trace() - 2 * shared)


def _pixels(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def classes_reached(predicted: Iterable[int] | Mapping[int, int]) -> int:
    """Return how many classes the faults are predicted as; a mapping counts how often each.

    >>> classes_reached([3, 3, 5]), classes_reached({})
    (2, 0)
    """
    return len(_counts(predicted))


def scaled_entropy(predicted: Iterable[int] | Mapping[int, int]) -> float:
    """Return ``−Σ p ln p / ln(classes reached)`` over the predicted classes of the faults; 0 for a single class.

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
