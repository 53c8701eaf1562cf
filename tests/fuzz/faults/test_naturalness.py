"""Inception Score and Fréchet distance against their formulas in NumPy and SciPy."""

import numpy as np
import pytest
import torch
from scipy import linalg
from torch import nn

from neuralcov.core.errors import InputError
from neuralcov.fuzz.faults.quality import frechet_distance, gaussian_of, inception_score, naturalness

IMAGES = torch.randint(0, 256, (60, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
OTHERS = torch.randint(40, 220, (50, 3, 8, 8), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
WEIGHTS = torch.randn(192, 6, generator=torch.Generator().manual_seed(2))


def features(pixels):
    assert pixels.dtype == torch.float32
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    return (pixels - 0.5).flatten(1) @ WEIGHTS


def frechet(one, other):
    difference = one.mean(0) - other.mean(0)
    a, b = np.cov(one.T), np.cov(other.T)
    return difference @ difference + np.trace(a + b - 2 * linalg.sqrtm(a @ b).real)


def plain_inception_score(logits, splits):
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    scores = []
    for part in np.array_split(shares, splits):
        divergence = (part * (np.log(part) - np.log(part.mean(0)))).sum(1)
        scores.append(np.exp(divergence.mean()))
    return np.mean(scores), np.std(scores, ddof=1)


def test_against_the_formulas():
    found = naturalness(IMAGES, OTHERS, features, batch=17, splits=4, seed=3)
    ours, theirs = (features(images / 255).double().numpy() for images in (IMAGES, OTHERS))
    assert found.frechet_distance == pytest.approx(frechet(ours, theirs), rel=1e-4)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3)).numpy()
    mean, deviation = plain_inception_score(ours[order], 4)
    assert found.inception_score == pytest.approx(mean, rel=1e-6)
    assert found.inception_deviation == pytest.approx(deviation, rel=1e-4)
    assert (found.images, found.references) == (60, 50)
    assert set(found.to_json()) >= {"inception_score", "frechet_distance"}


def test_floats_and_bytes_are_the_same_and_the_global_generator_is_left_alone():
    torch.manual_seed(9)
    before = torch.random.get_rng_state()
    assert naturalness(IMAGES.float() / 255, OTHERS, features) == naturalness(IMAGES, OTHERS, features)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_classifier_of_its_own():
    def one_class(pixels):
        return torch.tensor([[9.0, 0.0]]).expand(len(pixels), 2)

    assert naturalness(IMAGES, OTHERS, features, classifier=one_class).inception_score == pytest.approx(1)


def test_the_same_images_are_no_distance_apart():
    assert naturalness(IMAGES, IMAGES, features).frechet_distance == pytest.approx(0, abs=1e-6)


def test_too_few_images_have_no_score():
    few = naturalness(IMAGES[:1], OTHERS, features)
    assert (few.inception_score, few.inception_deviation, few.frechet_distance) == (None, None, None)
    assert naturalness(IMAGES[:5], OTHERS, features).frechet_distance is not None
    assert naturalness(IMAGES[:0], OTHERS, features).images == 0


def test_wrong_features():
    with pytest.raises(InputError, match=r"features of shape \(50, 3, 8, 8\): expected \(images, features\)"):
        naturalness(IMAGES, OTHERS, lambda pixels: pixels)
    with pytest.raises(InputError, match="1 image: a Fréchet distance needs at least 2"):
        gaussian_of([torch.zeros(1, 4)])


class Given(nn.Module):
    num_features = 6

    def forward(self, features):
        return features


def test_the_fréchet_distance_agrees_with_torchmetrics():
    fid = pytest.importorskip("torchmetrics.image.fid")
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, 6, generator=random, dtype=torch.float64)
    ours = torch.randn(200, 6, generator=random, dtype=torch.float64) @ mixing
    theirs = torch.randn(150, 6, generator=random, dtype=torch.float64) + 0.5
    metric = fid.FrechetInceptionDistance(feature=Given(), normalize=True).set_dtype(torch.float64)
    metric.update(theirs, real=True)
    metric.update(ours, real=False)
    found = frechet_distance(gaussian_of(ours.split(64)), gaussian_of([theirs]))
    assert found == pytest.approx(float(metric.compute()), rel=1e-10)


def test_the_inception_score_agrees_with_torchmetrics():
    inception = pytest.importorskip("torchmetrics.image.inception")
    logits = 3 * torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    metric = inception.InceptionScore(feature=Given(), splits=4)
    metric.update(logits)
    torch.manual_seed(3)
    mean, deviation = metric.compute()
    found = inception_score(logits, splits=4, seed=3)
    assert found == (pytest.approx(float(mean), rel=1e-9), pytest.approx(float(deviation), rel=1e-9))


def test_of_a_set_to_itself_the_distance_is_nothing_even_if_flat():
    flat = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    flat[:, 3] = flat[:, 0]
    assert frechet_distance(gaussian_of([flat]), gaussian_of([flat])) == pytest.approx(0, abs=1e-6)
