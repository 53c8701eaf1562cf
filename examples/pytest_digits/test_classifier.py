"""Tests of a digits classifier, as they would be without any coverage; see docs/integrations/pytest.md.

Run ``pytest --neuralcov`` in this folder: pyproject.toml says what is measured.
"""

import pytest
import torch
from classifier import classifier
from torch import Tensor

from neuralcov import demo

SAMPLES = demo.digits("test")


def accuracy(images: Tensor, labels: Tensor) -> float:
    """Return the share of right answers."""
    network = classifier()
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())


@pytest.mark.parametrize("digit", range(10))
def test_each_digit(digit: int) -> None:
    """Nine in ten of every digit are told."""
    of_it = digit == SAMPLES.labels
    assert accuracy(SAMPLES.pixels()[of_it], SAMPLES.labels[of_it]) > 0.9


@pytest.mark.parametrize("factor", [0.7, 0.85])
def test_faint_ink(factor: float) -> None:
    """Fainter ink changes little."""
    assert accuracy(SAMPLES.pixels() * factor, SAMPLES.labels) > 0.9


def test_the_first_ten() -> None:
    """Nothing that other tests do not cover as well."""
    assert accuracy(SAMPLES.pixels()[:10], SAMPLES.labels[:10]) > 0.9
