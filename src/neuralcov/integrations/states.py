"""States of several processes, put together: they travel as bytes, and are merged in the order of the ranks."""

from __future__ import annotations

from typing import Any

from torch import distributed

from neuralcov.coverage.coverage import Coverage


def world_size() -> int:
    """Return how many processes share the work."""
    started = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if started else 1


def reduce_states(coverage: Coverage, group: Any = None) -> None:
    """Merge the states of all ranks, in all ranks; nothing to do in a single process.

    Args:
        coverage: of the same model, criteria and calibration in every rank.
        group: of ``torch.distributed``; all processes by default.
    """
    coverage.reduce(group)
