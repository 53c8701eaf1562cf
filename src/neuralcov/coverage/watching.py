"""Watch a model: a coverage that listens from its first moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

from neuralcov.coverage.collection import AnyCriterion
from neuralcov.coverage.coverage import Coverage


@contextmanager
def watch(model: nn.Module, criteria: Sequence[AnyCriterion], **options: Any) -> Iterator[Coverage]:
    """Measure the passes of a model that are made within the block; see ``Coverage.listen``.

    Args:
        model: any module.
        criteria: what to measure. Those that learn from training data need a coverage that was calibrated.
        options: further arguments of ``Coverage``, such as ``layers``.

    Examples:
        >>> import torch, neuralcov as nc
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> with nc.watch(model.eval(), [nc.NC(0.5)]) as cov:
        ...     scores = model(torch.eye(4))
        >>> cov.inputs
        4
    """
    coverage = Coverage(model, criteria, **options)
    with coverage.listen():
        yield coverage
