"""Clotho's idea, rebuilt from the paper's text: inputs unlike those that passed, by a mixture of Gaussians.

J. Yoon and others, "Clotho: Measuring Task-Specific Pre-Generation Test Adequacy for LLM Inputs", 2025. A mixture of
Gaussians over hidden states of inputs labelled as passing tells how likely an input is to pass, and which to label next
is chosen as labels come in. Rebuilt: the first fifth of the labels is drawn at random. Then, in four rounds, a mixture
is fitted to what has passed so far, and half of the next labels go to the least likely inputs, half to random ones.
Hidden states are what the output layer is given, along the 16 directions in which training data vary most.
"""

from __future__ import annotations

import numpy as np

_ROUNDS, _COMPONENTS = 5, 10


def clotho_order(
    features: np.ndarray, faulty: np.ndarray, labels: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places whose labels were asked for, and all others, the least likely to pass first.

    Args:
        features: of every input of a pool.
        faulty: which of them are faults; looked at only where a label was asked for.
        labels: how many may be asked for.
        random: what to draw with.
    """
    points = features.astype(np.float64)
    spread = points.std(0)
    points = (points - points.mean(0)) / np.where(spread > 0, spread, 1)
    asked = random.permutation(len(points))[: max(1, labels // _ROUNDS)]
    passed = asked[~faulty[asked]]
    chance = _likelihood(points, passed)
    for step in range(1, _ROUNDS):
        wanted = labels * (step + 1) // _ROUNDS - len(asked)
        left = np.setdiff1d(np.arange(len(points)), asked)
        strange = left[np.argsort(chance[left], kind="stable")[: wanted // 2]]
        drawn = random.permutation(np.setdiff1d(left, strange))[: wanted - len(strange)]
        new = np.concatenate([strange, drawn])
        asked, passed = np.concatenate([asked, new]), np.concatenate([passed, new[~faulty[new]]])
        chance = _likelihood(points, passed)
    left = np.setdiff1d(np.arange(len(points)), asked)
    return asked, left[np.argsort(chance[left], kind="stable")]


def _likelihood(points: np.ndarray, passed: np.ndarray) -> np.ndarray:
    """Return the logarithm of the density of all points under a mixture fitted to those that passed."""
    # Slow to import, and needed here alone.
    from sklearn.mixture import GaussianMixture

    components = max(1, min(_COMPONENTS, len(passed) // 10))
    if len(passed) < 2:
        return np.zeros(len(points))
    mixture = GaussianMixture(components, covariance_type="diag", reg_covar=1e-3, random_state=0)
    found: np.ndarray = mixture.fit(points[passed]).score_samples(points)
    return found
