"""States of several processes, put together: they travel as bytes, and are merged in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import distributed

from neuralcov.coverage.coverage import Coverage


def packed(coverage: Coverage) -> bytes:
    """Return the state of a coverage, to be sent to other processes; nothing where nothing was observed."""
    return coverage.to_bytes() if coverage.inputs else b""


def take_all(coverage: Coverage, states: Sequence[bytes]) -> None:
    """Replace the state of a coverage by all of these together.

    Merged in the order given, so that every process that does the same has the same values, to the bit. Samplers pad
    the last batch of some ranks with inputs of others, so that inputs may come twice.

    Args:
        coverage: of the same model, criteria and calibration.
        states: what :func:`packed` gave in each process.
    """
    total = coverage.fork()
    total.reset()
    for state in states:
        if state:
            total.merge(Coverage.from_bytes(state), overlap="repeat")
    coverage.restore(total.snapshot())


def world_size() -> int:
    """Return how many processes share the work."""
    started = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if started else 1


def reduce_states(coverage: Coverage) -> None:
    """Merge the states of all ranks, in all ranks; nothing to do in a single process."""
    coverage.reduce()
